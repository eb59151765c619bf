# cmake -DSOURCE=… -P paths.cmake: no text of the project names a place that exists on one machine only.
set(pattern "(^|[^A-Za-z0-9_.}-])/(home|root|work|Users|mnt|opt|srv|scratch)/[A-Za-z0-9_]")
file(GLOB_RECURSE files LIST_DIRECTORIES false RELATIVE ${SOURCE}
     ${SOURCE}/framework/* ${SOURCE}/autograd/* ${SOURCE}/layers/* ${SOURCE}/data/* ${SOURCE}/train/* ${SOURCE}/tests/*
     ${SOURCE}/docs/* ${SOURCE}/scripts/* ${SOURCE}/cmake/* ${SOURCE}/.ci/*)
file(GLOB top LIST_DIRECTORIES false RELATIVE ${SOURCE} ${SOURCE}/*)
list(FILTER files EXCLUDE REGEX "\\.(h5|png|gz|zst)$")

set(faults "")
set(count 0)
foreach(file ${files} ${top})
  math(EXPR count "${count} + 1")
  file(STRINGS ${SOURCE}/${file} lines REGEX "${pattern}")
  foreach(line ${lines})
    set(faults "${faults}\n${file}: ${line}")
  endforeach()
endforeach()

if(count LESS 100)
  message(FATAL_ERROR "only ${count} files were found below ${SOURCE}: the test looks in the wrong place")
endif()
if(faults)
  message(FATAL_ERROR "paths of one machine:${faults}")
endif()
message(STATUS "${count} files name no place of one machine")
