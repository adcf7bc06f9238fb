# Compiles misuse.cc. Each line that ends in "// error: REGEX" must have one error that matches REGEX, and the
# file must have no other error. Run: cmake -DCOMPILE="compiler options..." -P ...
cmake_policy(SET CMP0054 NEW)
cmake_policy(SET CMP0057 NEW)
set(file ${CMAKE_CURRENT_LIST_DIR}/misuse.cc)
separate_arguments(compile UNIX_COMMAND "${COMPILE}")
execute_process(COMMAND ${compile} -fsyntax-only -Werror=unused-result ${file}
                RESULT_VARIABLE result ERROR_VARIABLE errors)

file(READ ${file} rest)
set(line 0)
set(stated 0)
while(rest MATCHES "^([^\n]*)\n")
  set(text "${CMAKE_MATCH_1}")
  string(LENGTH "${text}\n" length)
  string(SUBSTRING "${rest}" ${length} -1 rest)
  math(EXPR line "${line} + 1")
  if(text MATCHES ";[ ]*// error: (.+)$")
    set(expected "${CMAKE_MATCH_1}")
    math(EXPR stated "${stated} + 1")
    if(NOT errors MATCHES "misuse\\.cc:${line}:[0-9]+: error: [^\n]*(${expected})")
      message(FATAL_ERROR "misuse.cc:${line}: no error matches '${expected}':\n${errors}")
    endif()
  endif()
endwhile()

# Errors that follow from the first one are reported in headers, so only errors in misuse.cc count.
string(REGEX MATCHALL "misuse\\.cc:[0-9]+:[0-9]+: (fatal )?error: " found "${errors}")
list(LENGTH found count)
if(stated EQUAL 0 OR NOT count EQUAL stated)
  message(FATAL_ERROR "${count} errors, ${stated} are stated:\n${errors}")
endif()
