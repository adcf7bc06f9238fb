# A file of this folder compiles as it is, and with MISUSE defined it fails with the error that its
# first line states ("// error: REGEX"). Run: cmake -DFILE=... -DCOMPILE="compiler options..." -P ...
separate_arguments(compile UNIX_COMMAND "${COMPILE}")
list(APPEND compile -fsyntax-only -Werror=unused-result)

file(STRINGS ${FILE} first LIMIT_COUNT 1)
if(NOT first MATCHES "^// error: (.+)$")
  message(FATAL_ERROR "${FILE}: the first line states no error")
endif()
set(expected "${CMAKE_MATCH_1}")

execute_process(COMMAND ${compile} ${FILE} RESULT_VARIABLE result ERROR_VARIABLE errors)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${FILE} does not compile without the misuse:\n${errors}")
endif()
execute_process(COMMAND ${compile} -DMISUSE ${FILE} RESULT_VARIABLE result ERROR_VARIABLE errors)
if(result EQUAL 0)
  message(FATAL_ERROR "${FILE}: the misuse compiles")
endif()
if(NOT errors MATCHES "error: [^\n]*(${expected})")
  message(FATAL_ERROR "${FILE}: no error matches '${expected}':\n${errors}")
endif()
