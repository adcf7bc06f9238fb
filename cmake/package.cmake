# cpack makes these packages of the build tree in which it runs:
# - ferry and libferry-dev as .deb, for the Debian on which they are built; dpkg-shlibdeps finds the
#   dependencies of the program;
# - with -G TGZ a .tar.gz of the target ferry_portable, which depends only on glibc.
set(CPACK_PACKAGE_NAME ferry)
set(CPACK_PACKAGE_VENDOR Ferry)
set(CPACK_PACKAGE_CONTACT "The Ferry maintainers <maintainers@ferry.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY
    "converts checkpoints of language models into ExecuTorch program bundles")
set(CPACK_PACKAGE_DESCRIPTION
    "Ferry converts checkpoints of language models into bundles of ExecuTorch programs, runs them on
a CPU, and proves that a bundle computes what its checkpoint computes.")
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 0)
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_BINARY_DIR}/package_version.cmake)
configure_file(${CMAKE_CURRENT_LIST_DIR}/package_version.cmake.in ${CPACK_PROJECT_CONFIG_FILE} @ONLY)

set(CPACK_GENERATOR DEB)
set(CPACK_COMPONENTS_ALL program development portable)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME ferry)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libferry-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
# find_package(ferry) looks for these packages.
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
    "libfmt-dev, libhdf5-dev, libhwy-dev, libjpeg62-turbo-dev, libpcre2-dev, libpng-dev, libseccomp-dev, libssl-dev, libutf8proc-dev, libwebp-dev, libyaml-dev, libzstd-dev, pkg-config, zlib1g-dev")
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION ${CPACK_PACKAGE_DESCRIPTION})
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION
    "The library behind the program ferry: an archive, headers, and a package for CMake.")
include(CPack)
