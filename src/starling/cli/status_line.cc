// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/cli/status_line.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>

namespace starling::cli {
namespace {

constexpr const char* kClearLine = "\r\033[K";

void put(const std::string& text) {
  static_cast<void>(std::fputs(text.c_str(), stderr));
  static_cast<void>(std::fflush(stderr));
}

// Cut to what fits on one row, because only one row can be cleared again, and never within a character.
std::string fitted(std::string text) {
  winsize size{};
  constexpr std::size_t kUsual = 80;
  const std::size_t columns = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsual;
  if (text.size() < columns) return text;
  text.resize(columns - 1);
  while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0x80U) != 0) text.pop_back();
  return text;
}

}  // namespace

std::string time_text(double seconds) {
  const auto whole = static_cast<long long>(std::ceil(seconds));
  constexpr long long kMinute = 60;
  constexpr long long kHour = 3600;
  if (whole < kMinute) return fmt::format("{} s", whole);
  if (whole < kHour) return fmt::format("{} min {:02} s", whole / kMinute, whole % kMinute);
  return fmt::format("{} h {:02} min", whole / kHour, whole % kHour / kMinute);
}

StatusLine::StatusLine() : terminal_(::isatty(STDERR_FILENO) == 1) {}

void StatusLine::show(const std::string& text) const {
  if (terminal_) put(kClearLine + fitted(text));
}

void StatusLine::print(const std::string& line) const {
  clear();
  put(line + "\n");
}

void StatusLine::clear() const {
  if (terminal_) put(kClearLine);
}

}  // namespace starling::cli
