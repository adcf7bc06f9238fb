# Writes OUTPUT, a C++ source with the style and the script of each kind of page, from the files in DIRECTORY.
# The scripts of one kind become one script, in the order of the lists below, in which a script comes before
# those that use it when they load. start.js is the last one and calls build_page() of the kind.
set(styles base.css parts.css charts.css)
set(common dom.js format.js state.js table.js palette.js)
set(audit_scripts ${common} treemap_layout.js treemap_paint.js treemap.js audit_tree.js
    audit_tables.js audit_diff.js audit.js start.js)
set(parity_scripts ${common} axes.js chart.js heat_map.js parity_layers.js parity_tokens.js
    parity.js start.js)
set(batch_scripts ${common} axes.js chart.js batch.js start.js)

# Appends the text of FILES to the variable RESULT. Fails if the text could end the HTML element or the string
# literal around it.
function(join result files)
  set(text "")
  foreach(file ${files})
    file(READ ${DIRECTORY}/${file} part)
    if(part MATCHES "</(script|style)|<!--|[)]ferry_page\"|\r")
      message(FATAL_ERROR "${file}: '${CMAKE_MATCH_0}' cannot stand in a page")
    endif()
    string(APPEND text "${part}\n")
  endforeach()
  set(${result} "${text}" PARENT_SCOPE)
endfunction()

set(source "// Made by report/embed.cmake from report/page.\n#include \"report/page_parts.h\"\n\n")
string(APPEND source "namespace ferry::report {\n\n")
join(style "${styles}")
string(APPEND source "const std::string_view kPageStyle = R\"ferry_page(\n${style})ferry_page\";\n\n")
foreach(kind audit parity batch)
  join(script "${${kind}_scripts}")
  set(script "(() => {\n'use strict';\n${script}})();\n")
  string(SUBSTRING ${kind} 0 1 initial)
  string(TOUPPER ${initial} initial)
  string(SUBSTRING ${kind} 1 -1 rest)
  string(APPEND source "const std::string_view k${initial}${rest}Script = R\"ferry_page(\n"
                       "${script})ferry_page\";\n\n")
endforeach()
string(APPEND source "}  // namespace ferry::report\n")
file(WRITE ${OUTPUT} "${source}")
