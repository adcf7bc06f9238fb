# Copies the licences of what is linked into ferry_portable and into the module of Python to FERRY_LICENCES, a
# file NAME.txt for each. Whoever passes on such a file must pass on these too. On Debian each package has its
# licences in /usr/share/doc; elsewhere they must be added by hand.
set(FERRY_LICENCES ${PROJECT_BINARY_DIR}/licences)
file(REMOVE_RECURSE ${FERRY_LICENCES})
file(MAKE_DIRECTORY ${FERRY_LICENCES})
foreach(package
        libaec-dev:libaec libcli11-dev:CLI11 libflatbuffers-dev:FlatBuffers libfmt-dev:fmt
        libhdf5-dev:HDF5 libhwy-dev:Highway libjpeg62-turbo-dev:libjpeg-turbo libpcre2-dev:PCRE2
        libpng-dev:libpng libseccomp-dev:libseccomp libssl-dev:OpenSSL libstdc++-12-dev:libstdc++
        libutf8proc-dev:utf8proc libwebp-dev:libwebp libxxhash-dev:xxHash libyaml-dev:libyaml libzstd-dev:zstd
        nlohmann-json3-dev:nlohmann-json zlib1g-dev:zlib)
  string(REPLACE ":" ";" package ${package})
  list(GET package 0 directory)
  list(GET package 1 name)
  if(EXISTS /usr/share/doc/${directory}/copyright)
    configure_file(/usr/share/doc/${directory}/copyright ${FERRY_LICENCES}/${name}.txt COPYONLY)
  else()
    list(APPEND FERRY_UNKNOWN_LICENCES ${name})
  endif()
endforeach()
if(FERRY_UNKNOWN_LICENCES)
  list(JOIN FERRY_UNKNOWN_LICENCES ", " names)
  message(STATUS "Not found in /usr/share/doc: the licences of ${names}")
endif()
