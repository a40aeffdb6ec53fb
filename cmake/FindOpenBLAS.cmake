# Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#
# OpenBLAS::headers. The library itself is opened at run time. Debian keeps the headers in a folder per flavour, any of which will do.
find_path(OpenBLAS_INCLUDE_DIR openblas_config.h PATH_SUFFIXES openblas openblas-pthread openblas-serial openblas-openmp
          ${CMAKE_LIBRARY_ARCHITECTURE}/openblas-pthread ${CMAKE_LIBRARY_ARCHITECTURE}/openblas-serial
          ${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OpenBLAS REQUIRED_VARS OpenBLAS_INCLUDE_DIR
                                  REASON_FAILURE_MESSAGE "On Debian: apt-get install libopenblas-dev")
if(OpenBLAS_FOUND AND NOT TARGET OpenBLAS::headers)
  add_library(OpenBLAS::headers INTERFACE IMPORTED)
  set_target_properties(OpenBLAS::headers PROPERTIES INTERFACE_INCLUDE_DIRECTORIES ${OpenBLAS_INCLUDE_DIR})
endif()
