// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Text that is to be shown as it is in HTML or SVG, between tags or in an attribute in double quotes.
#pragma once

#include <string>
#include <string_view>

namespace starling::lab {

inline std::string escaped_markup(std::string_view text) {
  std::string result;
  for (const char character : text) {
    switch (character) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += character;
    }
  }
  return result;
}

}  // namespace starling::lab
