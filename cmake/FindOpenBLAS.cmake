# Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#
# OpenBLAS::OpenBLAS. Debian keeps its headers in a folder per flavour (pthread, openmp, serial), any of which will do.
find_library(OpenBLAS_LIBRARY openblas)
find_path(OpenBLAS_INCLUDE_DIR openblas_config.h PATH_SUFFIXES openblas openblas-pthread openblas-serial openblas-openmp
          ${CMAKE_LIBRARY_ARCHITECTURE}/openblas-pthread ${CMAKE_LIBRARY_ARCHITECTURE}/openblas-serial
          ${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OpenBLAS REQUIRED_VARS OpenBLAS_LIBRARY OpenBLAS_INCLUDE_DIR
                                  REASON_FAILURE_MESSAGE "On Debian: apt-get install libopenblas-dev")
if(OpenBLAS_FOUND AND NOT TARGET OpenBLAS::OpenBLAS)
  add_library(OpenBLAS::OpenBLAS UNKNOWN IMPORTED)
  set_target_properties(OpenBLAS::OpenBLAS PROPERTIES IMPORTED_LOCATION ${OpenBLAS_LIBRARY}
                        INTERFACE_INCLUDE_DIRECTORIES ${OpenBLAS_INCLUDE_DIR})
endif()
