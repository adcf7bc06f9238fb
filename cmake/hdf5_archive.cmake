# Makes PkgConfig::hdf5 link the archive of libhdf5, if there is one that links. Debian's shared
# library loads 30 others (libcurl, GnuTLS, Kerberos, LDAP) for file drivers that Ferry does not use.
# Loading these took longer than most runs of ferry.
include(CheckCXXSourceCompiles)
find_library(FERRY_HDF5_ARCHIVE libhdf5.a HINTS ${hdf5_LIBRARY_DIRS})
find_library(FERRY_SZ_LIBRARY sz)
if(FERRY_HDF5_ARCHIVE AND FERRY_SZ_LIBRARY)
  set(libraries ${FERRY_HDF5_ARCHIVE} ${FERRY_SZ_LIBRARY} ZLIB::ZLIB m ${CMAKE_DL_LIBS})
  set(CMAKE_REQUIRED_INCLUDES ${hdf5_INCLUDE_DIRS})
  set(CMAKE_REQUIRED_LIBRARIES ${libraries})
  check_cxx_source_compiles(
    "#include <hdf5.h>
    int main() { return H5Fopen(\"\", 0, H5P_DEFAULT) < 0 || H5FDregister(nullptr) < 0; }"
    FERRY_HDF5_ARCHIVE_LINKS)
  unset(CMAKE_REQUIRED_INCLUDES)
  unset(CMAKE_REQUIRED_LIBRARIES)
  if(FERRY_HDF5_ARCHIVE_LINKS)
    set_property(TARGET PkgConfig::hdf5 PROPERTY INTERFACE_LINK_LIBRARIES ${libraries})
  endif()
endif()
