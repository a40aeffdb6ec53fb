// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// A name with options, as data sets are written: "blobs:classes=5,spread=0.2". Options are asked for one by one; what nobody asked for is
// then rejected with a hint, so that a misspelt option never passes unnoticed.
//
//   Specification specification("blobs:classes=5", "data set");
//   const std::uint64_t classes = specification.integer("classes", 3, 2, 1000);
//   specification.reject_unknown();
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace starling::data {

class Specification {
 public:
  // `what` is what the text names, for messages. Throws UserError where an option is not key=value, or is given twice.
  Specification(std::string text, std::string what);

  const std::string& name() const { return name_; }
  const std::string& text() const { return text_; }

  // The value of an option, or `otherwise` where it is not given. Throws UserError for what is no number within the bounds (both included).
  std::uint64_t integer(const std::string& key, std::uint64_t otherwise, std::uint64_t least, std::uint64_t most);
  double number(const std::string& key, double otherwise, double least, double most);

  // To be called after all options have been asked for.
  void reject_unknown() const;

 private:
  // Null where the option is not given; remembers that it was asked for.
  const std::string* find(const std::string& key);
  [[noreturn]] void reject(const std::string& key, const std::string& value, const std::string& valid) const;

  std::string text_;
  std::string what_;
  std::string name_;
  std::vector<std::pair<std::string, std::string>> options_;
  std::vector<std::string> asked_;
};

}  // namespace starling::data
