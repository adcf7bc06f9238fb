# Installs the program and the library. The library consists of one archive, libferry.a, with all folders
# but cli, of the public headers, and of a package for find_package(ferry), which defines the target
# ferry::ferry.
#
# The component `program` is for users of the command line, `development` is the library. `portable` has
# the target ferry_portable instead of the program, and is installed only by name.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Calls install(ARGUMENTS...) for the components `program` and `portable`.
function(ferry_install_with_program)
  install(${ARGV} COMPONENT program)
  install(${ARGV} COMPONENT portable EXCLUDE_FROM_ALL)
endfunction()

install(TARGETS ferry COMPONENT program)
ferry_install_with_program(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md
                           TYPE DOC)
# Documents keep their folder beside the README, so that its links lead to them.
ferry_install_with_program(DIRECTORY ${PROJECT_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
if(EXISTS ${PROJECT_SOURCE_DIR}/LICENSE)
  ferry_install_with_program(FILES ${PROJECT_SOURCE_DIR}/LICENSE TYPE DOC)
endif()

# Programs include only <ferry/ferry.h> and the headers beside it.
file(GLOB public_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/ferry/*.h)

get_property(objects GLOBAL PROPERTY FERRY_OBJECTS)
add_library(ferry_library STATIC)
add_library(ferry::ferry ALIAS ferry_library)
set_target_properties(ferry_library PROPERTIES OUTPUT_NAME ferry EXPORT_NAME ferry LINKER_LANGUAGE CXX)
foreach(library ${objects})
  target_sources(ferry_library PRIVATE $<TARGET_OBJECTS:${library}>)
endforeach()
target_compile_features(ferry_library PUBLIC cxx_std_20)
target_link_libraries(ferry_library
  PUBLIC Threads::Threads
  PRIVATE fmt::fmt OpenSSL::Crypto ZLIB::ZLIB PkgConfig::hdf5 PkgConfig::seccomp PkgConfig::hwy
          PkgConfig::pcre2 PkgConfig::utf8proc PkgConfig::jpeg PkgConfig::png PkgConfig::webp
          PkgConfig::yaml PkgConfig::zstd)
target_sources(ferry_library PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}/include
                                    FILES ${public_headers})

install(TARGETS ferry_library EXPORT ferry COMPONENT development
        FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/ferry)
install(EXPORT ferry NAMESPACE ferry:: FILE ferryTargets.cmake DESTINATION ${package}
        COMPONENT development)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/ferryConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/ferryConfig.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ferryConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ferryConfig.cmake ${PROJECT_BINARY_DIR}/ferryConfigVersion.cmake
              ${CMAKE_CURRENT_LIST_DIR}/hdf5_archive.cmake
        DESTINATION ${package} COMPONENT development)

include(cmake/licences.cmake)
include(cmake/portable.cmake)
if(TARGET ferry_portable)
  install(PROGRAMS $<TARGET_FILE:ferry_portable> TYPE BIN RENAME ferry
          COMPONENT portable EXCLUDE_FROM_ALL)
  install(DIRECTORY ${FERRY_LICENCES}/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/third_party
          COMPONENT portable EXCLUDE_FROM_ALL)
endif()
