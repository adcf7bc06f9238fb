# Read by CTest: a test for each suite of the GoogleTest program PROGRAM.
if(NOT EXISTS ${PROGRAM})
  add_test(${PROGRAM}_NOT_BUILT ${PROGRAM})
  return()
endif()
execute_process(COMMAND ${EMULATOR} ${PROGRAM} --gtest_list_tests
                OUTPUT_VARIABLE listed RESULT_VARIABLE code)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} --gtest_list_tests: ${code}")
endif()

# A suite is a line "Name." or "Name.  # TypeParam = ...", its tests are indented.
string(REGEX MATCHALL "(^|\n)[^ \n]+[.]" lines "${listed}")
foreach(line ${lines})
  string(REGEX REPLACE "^\n?(.*)[.]$" "\\1" suite "${line}")
  add_test(${suite} ${EMULATOR} ${PROGRAM} --gtest_brief=1 --gtest_filter=${suite}.*)
  # A processor for each test: threads that spin for one another would take it from other tests. Tests
  # of threads state their number.
  set_tests_properties(${suite} PROPERTIES TIMEOUT 600 PROCESSOR_AFFINITY ON)
  # The long ones begin first, so that none is left when the others are done.
  if(suite MATCHES "Crash|Fault|GoldenTest|FamilyTest|Stage")
    set_tests_properties(${suite} PROPERTIES COST 100)
  endif()
endforeach()
