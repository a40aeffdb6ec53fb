// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/cli/terminal_line.h"

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

// Only one row can be cleared again.
std::string fitted(std::string text) {
  winsize size{};
  constexpr std::size_t kUsual = 80;
  const std::size_t columns = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsual;
  if (text.size() >= columns) text.resize(columns - 1);
  return text;
}

}  // namespace

TerminalLine::TerminalLine() : terminal_(::isatty(STDERR_FILENO) == 1) {}

void TerminalLine::show(const std::string& text) const {
  if (terminal_) put(kClearLine + fitted(text));
}

void TerminalLine::clear() const {
  if (terminal_) put(kClearLine);
}

void TerminalLine::print(const std::string& text) const {
  clear();
  put(text + "\n");
}

std::string time_text(double seconds) {
  const auto whole = static_cast<long long>(std::ceil(seconds));
  constexpr long long kMinute = 60;
  constexpr long long kHour = 3600;
  if (whole < kMinute) return fmt::format("{} s", whole);
  if (whole < kHour) return fmt::format("{} min {:02} s", whole / kMinute, whole % kMinute);
  return fmt::format("{} h {:02} min", whole / kHour, whole % kHour / kMinute);
}

}  // namespace starling::cli
