# Installation: the program, the libraries with their headers, and a package file for find_package(gau).
#
# The libraries are static and their dependencies private, so a consumer compiles against our headers and fmt alone; it still
# links the rest, which gauConfig.cmake therefore finds in the same way as the project itself.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(gau_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gau)
set(gau_libraries gau_framework gau_autograd gau_layers gau_data gau_train)

foreach(folder framework autograd layers data train)
  set_target_properties(gau_${folder} PROPERTIES EXPORT_NAME ${folder})
  add_library(gau::${folder} ALIAS gau_${folder})
  install(DIRECTORY ${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gau FILES_MATCHING PATTERN "*.h")
endforeach()

install(TARGETS gau gau-launch RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(TARGET gau_mpi)
  list(APPEND gau_libraries gau_mpi)
endif()
install(TARGETS ${gau_libraries} gau_dnnl gau_hdf5 gau_xxhash gau_zstd EXPORT gau
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT gau NAMESPACE gau:: DESTINATION ${gau_package_dir} FILE gauTargets.cmake)

configure_package_config_file(cmake/gauConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/gauConfig.cmake
                              INSTALL_DESTINATION ${gau_package_dir})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/gauConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/gauConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/gauConfigVersion.cmake
        DESTINATION ${gau_package_dir})
