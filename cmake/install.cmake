# The library as other projects use it: one archive, libferry.a, of all rooms but cli; the public
# headers; and a package for find_package(ferry), which defines the target ferry::ferry.
#
# Components: `program` is what a user of the command line needs, `development` is the library.
# `portable` is `program` with the target ferry_portable for its program; it is installed only where
# it is asked for.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# install(ARGUMENTS...) for both kinds of the program.
function(ferry_install_with_program)
  install(${ARGV} COMPONENT program)
  install(${ARGV} COMPONENT portable EXCLUDE_FROM_ALL)
endfunction()

install(TARGETS ferry COMPONENT program)
ferry_install_with_program(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md
                           TYPE DOC)
# As in the sources, so that links from the README lead to them.
ferry_install_with_program(DIRECTORY ${PROJECT_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
if(EXISTS ${PROJECT_SOURCE_DIR}/LICENSE)
  ferry_install_with_program(FILES ${PROJECT_SOURCE_DIR}/LICENSE TYPE DOC)
endif()

# What a program includes; docs/library.md is about these.
set(public_headers
  core/interrupt.h checkpoint/checkpoint.h packer/bundle_reader.h packer/check.h convert/convert.h
  convert/export.h prompt/image_input.h listing/listing.h proof/bundle_proof.h proof/reference.h
  proof/reference_proof.h runner/decoder.h runner/sampler.h runner/text_encoder.h runner/vision_encoder.h
  text/chat_template/chat_template.h prompt/image_prompt.h text/tokenizer/text_stream.h
  text/tokenizer/tokenizer.h text/tokenizer/tokenizer_files.h)

# ... and what these include, so that the set is complete by construction.
set(installed_headers)
while(public_headers)
  list(POP_FRONT public_headers header)
  if(header IN_LIST installed_headers)
    continue()
  endif()
  list(APPEND installed_headers ${header})
  file(STRINGS ${PROJECT_SOURCE_DIR}/${header} includes REGEX "^#include \"")
  foreach(line ${includes})
    string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" included "${line}")
    list(APPEND public_headers ${included})
  endforeach()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${header})
endwhile()
list(SORT installed_headers)

get_property(objects GLOBAL PROPERTY FERRY_OBJECTS)
add_library(ferry_library STATIC)
add_library(ferry::ferry ALIAS ferry_library)
set_target_properties(ferry_library PROPERTIES OUTPUT_NAME ferry EXPORT_NAME ferry LINKER_LANGUAGE CXX)
foreach(library ${objects})
  target_sources(ferry_library PRIVATE $<TARGET_OBJECTS:${library}>)
endforeach()
target_compile_features(ferry_library PUBLIC cxx_std_20)
target_link_libraries(ferry_library
  PUBLIC fmt::fmt Threads::Threads
  PRIVATE OpenSSL::Crypto ZLIB::ZLIB PkgConfig::hdf5 PkgConfig::seccomp PkgConfig::hwy
          PkgConfig::pcre2 PkgConfig::utf8proc PkgConfig::jpeg PkgConfig::png PkgConfig::webp)
list(TRANSFORM installed_headers PREPEND ${PROJECT_SOURCE_DIR}/)
target_sources(ferry_library PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}
                                    FILES ${installed_headers})
# <ferry/convert/convert.h> in programs; "convert/convert.h" in the headers themselves.
target_include_directories(ferry_library INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

install(TARGETS ferry_library EXPORT ferry COMPONENT development
        FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ferry COMPONENT development)
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

include(cmake/portable.cmake)
if(TARGET ferry_portable)
  install(PROGRAMS $<TARGET_FILE:ferry_portable> TYPE BIN RENAME ferry
          COMPONENT portable EXCLUDE_FROM_ALL)
endif()
