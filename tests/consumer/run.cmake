# cmake -DBUILD=… -DSOURCE=… -DCOMPILER=… -P run.cmake: installs the build into a prefix of its own, then configures, builds
# and runs the consumer against that prefix.
set(work ${BUILD}/consumer-test)
file(REMOVE_RECURSE ${work})

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${ARGN}: ${status}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${work}/prefix)
run(${CMAKE_COMMAND} -S ${SOURCE} -B ${work}/build -G Ninja -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_BUILD_TYPE=Release
    -DCMAKE_PREFIX_PATH=${work}/prefix)
run(${CMAKE_COMMAND} --build ${work}/build)
run(${CMAKE_COMMAND} -E chdir ${work} ${work}/build/consumer)
if(NOT output MATCHES "step 2 loss [0-9]")
  message(FATAL_ERROR "the consumer did not train:\n${output}")
endif()
run(${work}/prefix/bin/gau --version)
message(STATUS "${output}")
