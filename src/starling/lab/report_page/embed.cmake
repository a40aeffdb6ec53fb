# Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#
# Writes OUTPUT, a C++ source with the texts of the report page: cmake -DOUTPUT=... -DFOLDER=... -DCHARTS=chart.min.js "-DSCRIPTS=a.js|b.js" -P embed.cmake
string(REPLACE "|" ";" SCRIPTS "${SCRIPTS}")
set(text "// Made by embed.cmake from the files of lab/report_page. Do not edit.\n#include \"starling/lab/report_assets.h\"\n\nnamespace starling::lab {\nnamespace {\n\n")

# Several files become one array, in their order.
function(embed name)
  set(hex "")
  foreach(file ${ARGN})
    file(READ ${file} part HEX)
    string(APPEND hex ${part})
  endforeach()
  string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
  set(text "${text}const unsigned char ${name}[] = {\n${hex}};\n\n" PARENT_SCOPE)
endfunction()

embed(kHtml ${FOLDER}/page.html)
embed(kStyle ${FOLDER}/report.css)
list(TRANSFORM SCRIPTS PREPEND ${FOLDER}/)
embed(kScript ${SCRIPTS})
embed(kCharts ${CHARTS})
string(APPEND text "template <unsigned long kSize>\nstd::string_view text_of(const unsigned char (&bytes)[kSize]) {\n"
                   "  return {reinterpret_cast<const char*>(bytes), kSize};\n}\n\n}  // namespace\n\n"
                   "std::string_view report_page_html() { return text_of(kHtml); }\n"
                   "std::string_view report_page_style() { return text_of(kStyle); }\n"
                   "std::string_view report_page_script() { return text_of(kScript); }\n"
                   "std::string_view report_page_charts() { return text_of(kCharts); }\n\n}  // namespace starling::lab\n")
file(WRITE ${OUTPUT} "${text}")
