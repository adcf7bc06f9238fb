# CTest reads this file. It adds a test for each suite of the GoogleTest program PROGRAM.
if(NOT EXISTS ${PROGRAM})
  add_test(${PROGRAM}_NOT_BUILT ${PROGRAM})
  return()
endif()
execute_process(COMMAND ${EMULATOR} ${PROGRAM} --gtest_list_tests
                OUTPUT_VARIABLE listed RESULT_VARIABLE code)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} --gtest_list_tests: ${code}")
endif()

# A line "Name." or "Name.  # TypeParam = ..." is a suite. Lines of tests are indented.
string(REGEX MATCHALL "(^|\n)[^ \n]+[.]" lines "${listed}")
foreach(line ${lines})
  string(REGEX REPLACE "^\n?(.*)[.]$" "\\1" suite "${line}")
  add_test(${suite} ${EMULATOR} ${PROGRAM} --gtest_brief=1 --gtest_filter=${suite}.*)
  # Each test gets a processor of its own, because threads that spin would slow down other tests. Tests of
  # threads state how many threads they need.
  set_tests_properties(${suite} PROPERTIES TIMEOUT 600 PROCESSOR_AFFINITY ON)
  # Long suites start first, so that no processor waits for one of them at the end.
  if(suite MATCHES "Crash|Fault|GoldenTest|FamilyTest|Stage")
    set_tests_properties(${suite} PROPERTIES COST 100)
  endif()
endforeach()
