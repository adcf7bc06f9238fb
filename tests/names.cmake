# tests/FOLDER/NAME_test.cc tests FOLDER/NAME, and NAME_ASPECT_test.cc tests one aspect of it. This script
# finds tests whose names belong to no source. Features of several sources are tested in the folders that
# are listed below. Run: cmake -DROOT=... -P names.cmake
cmake_minimum_required(VERSION 3.25)
set(features browser decoding end_to_end faults fuzz mutation)

file(GLOB_RECURSE tests RELATIVE ${ROOT}/tests ${ROOT}/tests/*_test.cc)
set(nameless "")
foreach(test ${tests})
  string(REGEX REPLACE "/.*" "" folder ${test})
  if(folder IN_LIST features)
    continue()
  endif()
  string(REGEX REPLACE "_test\\.cc$" "" source ${test})
  while(NOT EXISTS ${ROOT}/${source}.cc AND NOT EXISTS ${ROOT}/${source}.h
        AND source MATCHES "_[^_/]*$")
    string(REGEX REPLACE "_[^_/]*$" "" source ${source})
  endwhile()
  if(NOT EXISTS ${ROOT}/${source}.cc AND NOT EXISTS ${ROOT}/${source}.h)
    string(APPEND nameless "\n  tests/${test}")
  endif()
endforeach()
if(nameless)
  message(FATAL_ERROR "These tests are named like no source:${nameless}")
endif()

# Every folder of fixtures has a row in testdata/README.md, which says what it is for and what made it.
file(READ ${ROOT}/testdata/README.md rows)
file(GLOB folders RELATIVE ${ROOT}/testdata ${ROOT}/testdata/*)
set(unknown "")
foreach(folder ${folders})
  if(IS_DIRECTORY ${ROOT}/testdata/${folder} AND NOT rows MATCHES "[`{,]${folder}[/`},]")
    string(APPEND unknown "\n  testdata/${folder}")
  endif()
endforeach()
if(unknown)
  message(FATAL_ERROR "These folders have no row in testdata/README.md:${unknown}")
endif()
