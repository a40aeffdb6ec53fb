// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// The files that the report page is made of. Their texts are put into the library when it is built: see embed.cmake beside page.html.
#pragma once

#include <string_view>

namespace starling::lab {

std::string_view report_page_html();   // The page, with @STYLE@, @CHARTS@, @SCRIPT@, @TITLE@, @POLICY@ and @DATA@ where the others go.
std::string_view report_page_style();  // CSS.
std::string_view report_page_script();
std::string_view report_page_charts();  // Chart.js, minified, with its notice.

}  // namespace starling::lab
