# With FERRY_PORTABLE, ferry links the archives of its libraries, so that it needs nothing but glibc
# where it runs. Debian has archives of all of them but two:
# - fmt: a source compiled with its own header-only mode gives what it has in the library;
# - highway: only the choice of instructions and aligned memory are in its library.
#   cmake/portable/highway.cc has them.
function(ferry_link_archive target)
  set(archives)
  foreach(name ${ARGN})
    find_library(FERRY_ARCHIVE_${name} lib${name}.a REQUIRED)
    list(APPEND archives ${FERRY_ARCHIVE_${name}})
  endforeach()
  set_property(TARGET ${target} PROPERTY INTERFACE_LINK_LIBRARIES ${archives})
endfunction()

ferry_link_archive(PkgConfig::pcre2 pcre2-8)
ferry_link_archive(PkgConfig::utf8proc utf8proc)
ferry_link_archive(PkgConfig::jpeg jpeg)
ferry_link_archive(PkgConfig::png png16 z m)
ferry_link_archive(PkgConfig::webp webp)
ferry_link_archive(PkgConfig::seccomp seccomp)

if(NOT FERRY_HDF5_ARCHIVE_LINKS)
  message(FATAL_ERROR "FERRY_PORTABLE: there is no archive of HDF5 that links")
endif()
find_library(FERRY_ARCHIVE_sz libsz.a REQUIRED)
find_library(FERRY_ARCHIVE_aec libaec.a REQUIRED)
get_property(libraries TARGET PkgConfig::hdf5 PROPERTY INTERFACE_LINK_LIBRARIES)
list(TRANSFORM libraries REPLACE "^${FERRY_SZ_LIBRARY}$" "${FERRY_ARCHIVE_sz};${FERRY_ARCHIVE_aec}")
set_property(TARGET PkgConfig::hdf5 PROPERTY INTERFACE_LINK_LIBRARIES ${libraries})

# The same definition as that of the shared library, so that objects are the same in both builds.
add_library(ferry_fmt STATIC ${CMAKE_CURRENT_LIST_DIR}/portable/fmt.cc)
target_compile_definitions(ferry_fmt INTERFACE FMT_SHARED)
add_library(fmt::fmt ALIAS ferry_fmt)
add_library(ferry_highway STATIC ${CMAKE_CURRENT_LIST_DIR}/portable/highway.cc)
set_property(TARGET PkgConfig::hwy PROPERTY INTERFACE_LINK_LIBRARIES ferry_highway)

add_link_options(-static-libstdc++ -static-libgcc)
