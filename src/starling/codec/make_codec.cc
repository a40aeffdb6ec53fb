// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "starling/base/error.h"
#include "starling/base/units.h"
#include "starling/codec/codec.h"
#include "starling/codec/codecs.h"

namespace starling::codec {
namespace {

// The options of a specification, asked for one by one. The first may be written without its key; what nobody has asked for is rejected, so
// that a misspelt option never passes unnoticed.
class Options {
 public:
  explicit Options(std::string text) : text_(std::move(text)) {
    const std::size_t colon = text_.find(':');
    name_ = text_.substr(0, colon);
    if (colon == std::string::npos) return;
    std::string rest = text_.substr(colon + 1);
    for (bool first = true;; first = false) {
      const std::size_t comma = rest.find(',');
      add(rest.substr(0, comma), first);
      if (comma == std::string::npos) return;
      rest.erase(0, comma + 1);
    }
  }

  const std::string& name() const { return name_; }
  const std::string& text() const { return text_; }

  // `least` itself is valid unless `open`.
  double number(const std::string& key, double otherwise, double least, double most, bool open = false) {
    const std::string* value = find(key);
    if (value == nullptr) return otherwise;
    const std::optional<Quantity> quantity = parse_quantity(*value);
    if (quantity && quantity->unit.empty() && quantity->value >= least && quantity->value <= most && !(open && quantity->value == least)) {
      return quantity->value;
    }
    reject(key, *value, fmt::format("a number {} {} and at most {}", open ? "above" : "of at least", least, most));
  }

  std::size_t integer(const std::string& key, std::size_t otherwise, std::size_t least, std::size_t most) {
    const std::string* value = find(key);
    if (value == nullptr) return otherwise;
    const std::optional<Quantity> quantity = parse_quantity(*value);
    if (quantity && quantity->unit.empty()) {
      const double given = quantity->value;
      if (given >= static_cast<double>(least) && given <= static_cast<double>(most)) {
        const auto whole = static_cast<std::size_t>(given);
        if (static_cast<double>(whole) == given) return whole;
      }
    }
    reject(key, *value, fmt::format("a whole number from {} to {}", least, most));
  }

  void reject_unknown() const {
    for (const auto& [key, value] : given_) {
      if (std::find(asked_.begin(), asked_.end(), key) != asked_.end()) continue;
      if (asked_.empty()) throw UserError(fmt::format("the codec is '{}', but {} has no options", text_, name_));
      throw UserError(fmt::format("the codec is '{}', but {} has no option '{}': it has {}.{}", text_, name_, key, fmt::join(asked_, ", "),
                                  nearest_name_hint(key, asked_)));
    }
  }

 private:
  void add(const std::string& option, bool first) {
    const std::size_t equals = option.find('=');
    if (equals == 0 || option.empty() || (equals == std::string::npos && !first)) {
      throw UserError(fmt::format(
          "the codec is '{}', but '{}' is no option: a codec is written NAME, NAME:VALUE or NAME:KEY=VALUE,KEY=VALUE", text_, option));
    }
    std::string key = equals == std::string::npos ? std::string() : option.substr(0, equals);
    if (std::any_of(given_.begin(), given_.end(), [&](const auto& other) { return other.first == key; })) {
      throw UserError(fmt::format("the codec is '{}', but '{}' is given twice", text_, key));
    }
    given_.emplace_back(std::move(key), equals == std::string::npos ? option : option.substr(equals + 1));
  }

  // Null where the option is not given. A value without a key belongs to the option that is asked for first.
  const std::string* find(const std::string& key) {
    for (auto& [name, value] : given_) {
      if (name.empty() && asked_.empty()) name = key;
    }
    asked_.push_back(key);
    const std::string* result = nullptr;
    for (const auto& [name, value] : given_) {
      if (name != key) continue;
      if (result != nullptr) throw UserError(fmt::format("the codec is '{}', but '{}' is given twice", text_, key));
      result = &value;
    }
    return result;
  }

  [[noreturn]] void reject(const std::string& key, const std::string& value, const std::string& valid) const {
    throw UserError(fmt::format("the {} of the codec '{}' is '{}', but it must be {}", key, text_, value, valid));
  }

  std::string text_;
  std::string name_;
  std::vector<std::pair<std::string, std::string>> given_;
  std::vector<std::string> asked_;
};

using Make = std::function<std::unique_ptr<Codec>(Options&, const CodecContext&)>;

struct Entry {
  CodecDescription description;
  Make make;
};

double ratio_of(Options& options, double otherwise) { return options.number("ratio", otherwise, 0, 1, true); }

template <class Maker>
Make without_options(Maker maker) {
  return [maker](Options& options, const CodecContext& context) {
    options.reject_unknown();
    return maker(context);
  };
}

std::unique_ptr<Codec> threshold_codec(Options& options, const CodecContext& context) {
  // Such that neither τ nor what is left of a component becomes zero or infinite in floats.
  const auto threshold = static_cast<float>(options.number("tau", 0.001, 1e-30, 1e30));
  options.reject_unknown();
  return make_threshold(context, threshold);
}

std::unique_ptr<Codec> top_k_codec(Options& options, const CodecContext& context) {
  const double ratio = ratio_of(options, 0.01);
  options.reject_unknown();
  return make_top_k(context, ratio);
}

std::unique_ptr<Codec> random_k_codec(Options& options, const CodecContext& context) {
  const double ratio = ratio_of(options, 0.25);
  options.reject_unknown();
  return make_random_k(context, ratio);
}

std::unique_ptr<Codec> dgc_codec(Options& options, const CodecContext& context) {
  DgcOptions dgc;
  dgc.ratio = ratio_of(options, dgc.ratio);
  dgc.warmup_epochs = options.number("warmup", dgc.warmup_epochs, 0, 1e6);
  dgc.masking = options.integer("masking", 1, 0, 1) == 1;
  options.reject_unknown();
  return make_dgc(context, dgc);
}

std::unique_ptr<Codec> power_sgd_codec(Options& options, const CodecContext& context) {
  const std::size_t rank = options.integer("rank", 4, 1, 1024);
  options.reject_unknown();
  return make_power_sgd(context, rank);
}

const std::vector<Entry>& table() {
  static const std::vector<Entry> kEntries{
      {{"fp32", "fp32", "floats as they are; loses nothing"}, without_options(make_fp32)},
      {{"fp16", "fp16", "IEEE half precision, with error feedback"}, without_options(make_fp16)},
      {{"bf16", "bf16", "the upper half of a float, with error feedback"}, without_options(make_bf16)},
      {{"int8", "int8", "8 bits and a scale to each block of 256, with error feedback"}, without_options(make_int8)},
      {{"1bit", "1bit", "signs, and two means to each block of 512, with error feedback"}, without_options(make_one_bit)},
      {{"threshold", "threshold[:TAU]", "±TAU where what has accumulated is beyond it [0.001]"}, threshold_codec},
      {{"topk", "topk[:RATIO]", "the RATIO of the components that are largest, with error feedback [0.01]"}, top_k_codec},
      {{"randomk", "randomk[:RATIO]", "a random RATIO of the components, with error feedback [0.25]"}, random_k_codec},
      {{"dgc", "dgc[:RATIO][,warmup=EPOCHS][,masking=0|1]",
        "deep gradient compression: the largest of accumulated velocities; RATIO is reached over the warm-up [0.001, 5, 1]"},
       dgc_codec},
      {{"powersgd", "powersgd[:RANK]", "matrices as products of two of RANK columns, with error feedback [4]"}, power_sgd_codec},
  };
  return kEntries;
}

}  // namespace

std::unique_ptr<Codec> make_codec(const std::string& specification, const CodecContext& context) {
  Options options(specification);
  if (context.layout.parameter_count() > std::numeric_limits<std::uint32_t>::max()) {
    throw UserError(fmt::format("the model has {} parameters, but codecs take at most {}", context.layout.parameter_count(),
                                std::numeric_limits<std::uint32_t>::max()));
  }
  std::vector<std::string> names;
  for (const Entry& entry : table()) {
    if (entry.description.name == options.name()) return entry.make(options, context);
    names.push_back(entry.description.name);
  }
  throw UserError(fmt::format("there is no codec '{}' (given as '{}'): it is one of {}.{}", options.name(), specification,
                              fmt::join(names, ", "), nearest_name_hint(options.name(), names)));
}

const std::vector<CodecDescription>& codec_descriptions() {
  static const std::vector<CodecDescription> kDescriptions = [] {
    std::vector<CodecDescription> result;
    for (const Entry& entry : table()) result.push_back(entry.description);
    return result;
  }();
  return kDescriptions;
}

}  // namespace starling::codec
