# cmake -DSOURCE=… -P includes.cmake: the rule of who may include whom, and which files may include a third-party library.
# A compiler would not notice: all headers lie below one root.
set(allowed_framework "framework")
set(allowed_autograd "autograd|framework")
set(allowed_layers "layers|autograd|framework")
set(allowed_data "data|framework")
set(allowed_train "train|layers|data|autograd|framework")

# "header pattern" then "the files that may include it".
set(fenced
    "oneapi/dnnl/" "^framework/cpu/gemm_onednn\\.cpp$"
    "hdf5\\.h" "^framework/hdf5_library\\.h$"
    "omp\\.h" "^framework/cpu/gemm_onednn\\.cpp$"
    "mpi\\.h" "^framework/mpi/mpi\\.cpp$"
    "CLI/" "^train/cli/"
    "toml\\+\\+/" "^train/config_file\\.cpp$"
    "zlib\\.h" "^data/byte_source\\.cpp$"
    "zstd\\.h" "^data/byte_source\\.cpp$"
    "xxhash\\.h" "^framework/digest\\.cpp$")

set(faults "")
set(edges 0)

function(check_project_include file folder target)
  if(target MATCHES "^(framework|autograd|layers|data|train|tests)/" AND NOT target MATCHES "^(${allowed_${folder}})/")
    set(faults "${faults}\n${file} includes ${target}; ${folder} may include: ${allowed_${folder}}" PARENT_SCOPE)
  endif()
endfunction()

function(check_library_include file target)
  list(LENGTH fenced count)
  math(EXPR last "${count} - 1")
  foreach(i RANGE 0 ${last} 2)
    math(EXPR next "${i} + 1")
    list(GET fenced ${i} header)
    list(GET fenced ${next} files)
    if(target MATCHES "^${header}" AND NOT file MATCHES "${files}")
      set(faults "${faults}\n${file} includes <${target}>; allowed in: ${files}")
    endif()
  endforeach()
  set(faults "${faults}" PARENT_SCOPE)
endfunction()

foreach(folder framework autograd layers data train)
  file(GLOB_RECURSE sources RELATIVE ${SOURCE} ${SOURCE}/${folder}/*.h ${SOURCE}/${folder}/*.cpp ${SOURCE}/${folder}/*.cu)
  foreach(file ${sources})
    file(STRINGS ${SOURCE}/${file} lines REGEX "^[ \t]*#[ \t]*include")
    foreach(line ${lines})
      math(EXPR edges "${edges} + 1")
      if(line MATCHES "include[ \t]*[<\"]([^>\"]+)[>\"]")
        set(target ${CMAKE_MATCH_1})
        check_project_include(${file} ${folder} ${target})
        check_library_include(${file} ${target})
      endif()
    endforeach()
  endforeach()
endforeach()

if(edges LESS 100)
  message(FATAL_ERROR "only ${edges} includes were found below ${SOURCE}: the test looks in the wrong place")
endif()
if(faults)
  message(FATAL_ERROR "includes across the fence:${faults}")
endif()
message(STATUS "${edges} includes keep to the rule")
