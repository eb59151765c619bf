# Installation: the program, the libraries with their headers, and a package file for find_package(gau).
include(GNUInstallDirs)
install(TARGETS gau RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
