# Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#
# Installs the build BUILD into WORK, builds the project SOURCE against it as an outsider would, and runs its program PROGRAM, whose output
# must match EXPECTED.
function(must)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${ARGN}\nfailed: ${result}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK})
must(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
must(${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK}/build -G Ninja -DCMAKE_PREFIX_PATH=${WORK}/prefix
     -DCMAKE_BUILD_TYPE=Release)
must(${CMAKE_COMMAND} --build ${WORK}/build)
must(${WORK}/build/${PROGRAM})
message("${output}")
if(NOT output MATCHES "${EXPECTED}")
  message(FATAL_ERROR "the output does not match '${EXPECTED}'")
endif()
must(${WORK}/prefix/bin/starling --version)
