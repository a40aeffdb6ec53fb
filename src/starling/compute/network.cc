// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/compute/network.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "starling/base/error.h"
#include "starling/base/random.h"

namespace starling::compute {
namespace {

constexpr std::string_view kLenet5 =
    "conv 6 5x5 pad 2, relu, maxpool 2, conv 16 5x5, relu, maxpool 2, dense 120, relu, dense 84, relu, dense 10";
constexpr std::string_view kCifar10Full =
    "conv 32 5x5 pad 2, maxpool 3 stride 2 ceil, relu, conv 32 5x5 pad 2, relu, avgpool 3 stride 2 ceil, conv 64 5x5 pad 2, relu, "
    "avgpool 3 stride 2 ceil, dense 10";
constexpr int kLargest = 1 << 24;  // Of any number in a text: far beyond use, and safe to multiply.

const std::vector<std::string> kElementNames{"dense",   "conv",      "maxpool", "avgpool",       "relu", "tanh",
                                             "sigmoid", "batchnorm", "dropout", "cross-entropy", "mse"};

struct Word {
  std::string_view text;
  std::size_t begin = 0;  // In the whole text.
};

std::string shape_text(const data::Shape& shape) {
  if (shape.height == 1 && shape.width == 1) return std::to_string(shape.channels);
  return fmt::format("{}x{}x{}", shape.channels, shape.height, shape.width);
}

// Reads a text from left to right, one element (layer or loss) at a time.
class Parser {
 public:
  Parser(std::string_view text, const Problem& problem) : text_(text), problem_(problem), shape_(problem.input) {}

  Network parse() {
    network_.text = std::string(text_);
    network_.loss = problem_.labels ? LossKind::cross_entropy : LossKind::mse;
    std::size_t begin = 0;
    while (begin <= text_.size()) {
      std::size_t end = text_.find(',', begin);
      if (end == std::string_view::npos) end = text_.size();
      split(begin, end);
      element();
      begin = end + 1;
    }
    check_outputs();
    return std::move(network_);
  }

 private:
  [[noreturn]] void fail(const std::string& what, std::size_t begin, std::size_t end) const {
    throw UserError(
        fmt::format("{}\n  {}\n  {}{}", what, text_, std::string(begin, ' '), std::string(std::max<std::size_t>(end - begin, 1), '^')));
  }
  [[noreturn]] void fail(const std::string& what, const Word& word) const { fail(what, word.begin, word.begin + word.text.size()); }
  [[noreturn]] void fail_element(const std::string& what) const {
    fail(what, words_.front().begin, words_.back().begin + words_.back().text.size());
  }

  void split(std::size_t begin, std::size_t end) {
    words_.clear();
    next_ = 0;
    while (begin < end) {
      const std::size_t first = text_.find_first_not_of(" \t\n", begin);
      if (first >= end) break;
      const std::size_t last = std::min(text_.find_first_of(" \t\n", first), end);
      words_.push_back({text_.substr(first, last - first), first});
      begin = last;
    }
    if (words_.empty()) fail("a layer is missing in the network", begin, begin + 1);
  }

  bool more() const { return next_ < words_.size(); }

  // The next word if it is this one.
  bool accept(std::string_view word) {
    if (!more() || words_[next_].text != word) return false;
    ++next_;
    return true;
  }

  std::optional<int> number(std::string_view text, int least) const {
    int value = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || rest != text.data() + text.size() || value < least || value > kLargest) return std::nullopt;
    return value;
  }

  int take_number(const std::string& what, int least) {
    if (!more()) fail_element(fmt::format("'{}' needs {}", words_.front().text, what));
    const Word& word = words_[next_++];
    const std::optional<int> value = number(word.text, least);
    if (!value) fail(fmt::format("{} must be a whole number from {} to {}, not '{}'", what, least, kLargest, word.text), word);
    return *value;
  }

  // "5x5", or "5" for a square.
  void take_kernel(LayerSpec& layer) {
    if (!more()) fail_element(fmt::format("'{}' needs the size of its window, as 5x5", words_.front().text));
    const Word& word = words_[next_++];
    const std::size_t cross = word.text.find('x');
    const std::optional<int> height = number(word.text.substr(0, cross), 1);
    const std::optional<int> width = cross == std::string_view::npos ? height : number(word.text.substr(cross + 1), 1);
    if (!height || !width) fail(fmt::format("the size of a window is a number or two, as 5x5, not '{}'", word.text), word);
    layer.kernel_height = *height;
    layer.kernel_width = *width;
  }

  void element() {
    const std::string name(words_.front().text);
    ++next_;
    if (finished_) fail_element("the loss must come last in a network");
    if (name == "cross-entropy" || name == "mse") return loss(name);
    LayerSpec layer;
    layer.input = shape_;
    if (name == "dense") {
      dense(layer);
    } else if (name == "conv") {
      convolution(layer);
    } else if (name == "maxpool" || name == "avgpool") {
      pooling(layer, name);
    } else if (name == "batchnorm") {
      layer.kind = LayerKind::batchnorm;
      layer.output = shape_;
      layer.batch_statistics = accept("batch");
    } else if (name == "dropout") {
      dropout(layer);
    } else if (name == "relu" || name == "tanh" || name == "sigmoid") {
      layer.kind = name == "relu" ? LayerKind::relu : name == "tanh" ? LayerKind::tanh : LayerKind::sigmoid;
      layer.output = shape_;
    } else {
      fail(fmt::format("there is no layer '{}'; there are {}.{}", name, fmt::join(kElementNames, ", "),
                       nearest_name_hint(name, kElementNames)),
           words_.front());
    }
    if (more()) fail(fmt::format("'{}' has no option '{}'", name, words_[next_].text), words_[next_]);
    const std::string prefix = name == "batchnorm" ? "norm" : name;
    layer.name = fmt::format("{}{}", prefix, ++numbers_[prefix]);
    shape_ = layer.output;
    network_.layers.push_back(layer);
  }

  void dense(LayerSpec& layer) {
    layer.kind = LayerKind::dense;
    layer.outputs = take_number("the number of outputs", 1);
    no_bias(layer);
    layer.output = {.channels = layer.outputs};
    check_size(layer, shape_.size());
  }

  void no_bias(LayerSpec& layer) {
    if (!accept("no")) return;
    if (!accept("bias")) fail_element("after 'no' comes 'bias'");
    layer.bias = false;
  }

  void convolution(LayerSpec& layer) {
    layer.kind = LayerKind::conv;
    layer.outputs = take_number("the number of output channels", 1);
    take_kernel(layer);
    while (more()) {
      if (accept("stride")) {
        layer.stride = take_number("the stride", 1);
      } else if (accept("pad")) {
        layer.pad = take_number("the padding", 0);
      } else {
        const std::size_t before = next_;
        no_bias(layer);
        if (next_ == before) break;
      }
    }
    if (layer.pad >= std::max(layer.kernel_height, layer.kernel_width)) {
      fail_element(fmt::format("a padding of {} lets the window of '{}' lie outside the image", layer.pad, words_.front().text));
    }
    layer.output = {.channels = layer.outputs,
                    .height = positions(layer, shape_.height, layer.kernel_height),
                    .width = positions(layer, shape_.width, layer.kernel_width)};
    check_size(layer, static_cast<std::size_t>(shape_.channels) * static_cast<std::size_t>(layer.kernel_height) *
                          static_cast<std::size_t>(layer.kernel_width));
  }

  void pooling(LayerSpec& layer, const std::string& name) {
    layer.kind = name == "maxpool" ? LayerKind::maxpool : LayerKind::avgpool;
    layer.outputs = shape_.channels;
    take_kernel(layer);
    if (layer.kernel_height != layer.kernel_width) fail_element("pooling windows are square");
    layer.stride = layer.kernel_height;
    while (more()) {
      if (accept("stride")) {
        layer.stride = take_number("the stride", 1);
      } else if (accept("ceil")) {
        layer.ceil = true;
      } else {
        break;
      }
    }
    layer.output = {.channels = shape_.channels,
                    .height = positions(layer, shape_.height, layer.kernel_height),
                    .width = positions(layer, shape_.width, layer.kernel_width)};
  }

  // How often a window fits along one axis.
  int positions(const LayerSpec& layer, int extent, int kernel) const {
    const int room = extent + 2 * layer.pad - kernel;
    if (room < 0) {
      fail_element(fmt::format("the window of '{}' is {} wide, but its input is {}{}", words_.front().text, kernel, shape_text(shape_),
                               layer.pad > 0 ? fmt::format(" and the padding {}", layer.pad) : ""));
    }
    int count = room / layer.stride + 1;
    // A partial last window, if at least one of its inputs exists.
    if (layer.ceil && room % layer.stride != 0 && count * layer.stride < extent) ++count;
    return count;
  }

  void dropout(LayerSpec& layer) {
    layer.kind = LayerKind::dropout;
    layer.output = shape_;
    if (!more()) fail_element("'dropout' needs the probability of being dropped, as 0.5");
    const Word& word = words_[next_++];
    const auto [rest, error] = std::from_chars(word.text.data(), word.text.data() + word.text.size(), layer.rate);
    if (error != std::errc() || rest != word.text.data() + word.text.size() || !(layer.rate >= 0 && layer.rate < 1)) {
      fail(fmt::format("the probability of being dropped is at least 0 and less than 1, not '{}'", word.text), word);
    }
  }

  void loss(const std::string& name) {
    if (more()) fail(fmt::format("'{}' has no option '{}'", name, words_[next_].text), words_[next_]);
    finished_ = true;
    network_.loss = name == "mse" ? LossKind::mse : LossKind::cross_entropy;
    if (network_.loss == LossKind::cross_entropy && !problem_.labels) {
      fail_element("cross-entropy needs classes, but the answers of these data are numbers; use mse");
    }
  }

  // Refuses what hardly any memory holds before anybody tries to allocate it.
  void check_size(const LayerSpec& layer, std::size_t inputs) const {
    constexpr double kMostWeights = 5e8;
    constexpr double kMostOutputs = 5e7;
    const double weights = static_cast<double>(inputs) * layer.outputs;
    const double outputs = static_cast<double>(layer.output.channels) * layer.output.height * layer.output.width;
    const std::string_view name = words_.front().text;
    if (weights > kMostWeights)
      fail_element(fmt::format("'{}' would have {:.3g} weights; at most {:.3g} can be trained", name, weights, kMostWeights));
    if (outputs > kMostOutputs)
      fail_element(fmt::format("'{}' would put out {:.3g} numbers per sample; at most {:.3g} can be held", name, outputs, kMostOutputs));
  }

  void check_outputs() const {
    const std::size_t outputs = network_.layers.empty() ? 0 : network_.layers.back().output.size();
    if (network_.layers.empty()) fail("a network needs at least one layer", 0, 1);
    if (outputs == static_cast<std::size_t>(problem_.outputs)) return;
    fail_element(fmt::format("the network has {} outputs, but the data need {}", outputs, problem_.outputs));
  }

  std::string_view text_;
  Problem problem_;
  data::Shape shape_;
  Network network_;
  std::vector<Word> words_;
  std::size_t next_ = 0;
  bool finished_ = false;
  std::map<std::string, int> numbers_;
};

// mlp:784-1000-10 → dense 1000, relu, dense 10
std::string perceptron_text(const std::string& model, const Problem& problem) {
  std::vector<int> sizes;
  std::string_view rest = std::string_view(model).substr(std::string_view("mlp:").size());
  while (true) {
    const std::string_view part = rest.substr(0, rest.find('-'));
    int size = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), size);
    if (error != std::errc() || end != part.data() + part.size() || size < 1 || size > kLargest) {
      throw UserError(fmt::format("'{}' is not a perceptron: after 'mlp:' come its sizes, as mlp:784-1000-1000-10", model));
    }
    sizes.push_back(size);
    if (part.size() == rest.size()) break;
    rest.remove_prefix(part.size() + 1);
  }
  if (sizes.size() < 2 || static_cast<std::size_t>(sizes.front()) != problem.input.size() || sizes.back() != problem.outputs) {
    throw UserError(fmt::format("'{}' does not fit: the data have {} inputs and {} answers, so it is mlp:{}-…-{}", model,
                                problem.input.size(), problem.outputs, problem.input.size(), problem.outputs));
  }
  std::string text;
  for (std::size_t i = 1; i < sizes.size(); ++i) text += fmt::format("{}dense {}", i == 1 ? "" : ", relu, ", sizes[i]);
  return text;
}

std::size_t fan_in(const LayerSpec& layer) {
  if (layer.kind == LayerKind::dense) return layer.input.size();
  return static_cast<std::size_t>(layer.input.channels) * static_cast<std::size_t>(layer.kernel_height) *
         static_cast<std::size_t>(layer.kernel_width);
}

}  // namespace

double Network::operations_per_sample() const {
  double operations = 0;
  for (const LayerSpec& layer : layers) {
    if (layer.kind != LayerKind::dense && layer.kind != LayerKind::conv) continue;
    operations += 2.0 * static_cast<double>(fan_in(layer)) * static_cast<double>(layer.output.size());
  }
  return operations;
}

params::Layout layout_of(const Network& network) {
  params::Layout layout;
  for (const LayerSpec& layer : network.layers) {
    if (layer.kind == LayerKind::dense) {
      layout.add(layer.name + ".weight", {layer.outputs, static_cast<std::int64_t>(layer.input.size())});
    } else if (layer.kind == LayerKind::conv) {
      layout.add(layer.name + ".weight", {layer.outputs, layer.input.channels, layer.kernel_height, layer.kernel_width});
    } else if (layer.kind == LayerKind::batchnorm) {
      layout.add(layer.name + ".weight", {layer.input.channels});
      layout.add(layer.name + ".bias", {layer.input.channels});
      continue;
    } else {
      continue;
    }
    if (layer.bias) layout.add(layer.name + ".bias", {layer.outputs});
  }
  for (const LayerSpec& layer : network.layers) {
    if (layer.kind != LayerKind::batchnorm || layer.batch_statistics) continue;
    layout.add(layer.name + ".mean", {layer.input.channels}, params::SliceKind::buffer);
    layout.add(layer.name + ".variance", {layer.input.channels}, params::SliceKind::buffer);
  }
  return layout;
}

void initialise(const Network& network, std::uint64_t seed, std::span<float> weights) {
  const params::Layout layout = layout_of(network);
  RandomStream random(seed, 0, "init");
  const auto part = [&](const std::string& name) { return params::Layout::part(weights, *layout.find(name)); };
  for (const LayerSpec& layer : network.layers) {
    if (layer.kind == LayerKind::batchnorm) {
      std::ranges::fill(part(layer.name + ".weight"), 1.0f);
      std::ranges::fill(part(layer.name + ".bias"), 0.0f);
      if (layer.batch_statistics) continue;
      std::ranges::fill(part(layer.name + ".mean"), 0.0f);
      std::ranges::fill(part(layer.name + ".variance"), 1.0f);
    }
    if (layer.kind != LayerKind::dense && layer.kind != LayerKind::conv) continue;
    const double bound = 1 / std::sqrt(static_cast<double>(fan_in(layer)));
    for (const char* suffix : {".weight", ".bias"}) {
      if (layout.find(layer.name + suffix) == nullptr) continue;
      for (float& value : part(layer.name + suffix)) value = static_cast<float>(bound * (2 * random.uniform() - 1));
    }
  }
}

std::vector<std::string> model_names() { return {"lenet5", "mlp:784-1000-1000-10", "softmax", "cifar10-full", "quadratic"}; }

bool is_network(const std::string& model) {
  if (model.starts_with("mlp:") || model.find_first_of(" ,") != std::string::npos) return true;
  const std::vector<std::string> names = model_names();
  // A text may be a single word, wrong as that is: it deserves its own message.
  return std::ranges::find(names, model) != names.end() || std::ranges::find(kElementNames, model) != kElementNames.end();
}

std::string network_text(const std::string& model, const Problem& problem) {
  if (model == "lenet5") return std::string(kLenet5);
  if (model == "cifar10-full") return std::string(kCifar10Full);
  if (model == "softmax") return fmt::format("dense {}", problem.outputs);
  if (model == "quadratic") return "dense 1 no bias, mse";
  if (model.starts_with("mlp:")) return perceptron_text(model, problem);
  if (is_network(model)) return model;
  const std::vector<std::string> names = model_names();
  throw UserError(fmt::format("there is no model '{}'; there are {}, a text such as 'dense 100, relu, dense 10', and torch:FILE.{}", model,
                              fmt::join(names, ", "), nearest_name_hint(model, names)));
}

std::string narrow(const Network& network, std::span<const int> widths) {
  const auto is_dense = [](const LayerSpec& layer) { return layer.kind == LayerKind::dense; };
  const auto dense_layers = static_cast<std::size_t>(std::ranges::count_if(network.layers, is_dense));
  STARLING_CHECK(dense_layers == widths.size() + 1, fmt::format("{} widths for the hidden layers of '{}'", widths.size(), network.text));
  std::size_t next = 0;
  std::vector<std::string> elements;
  for (const LayerSpec& layer : network.layers) {
    if (is_dense(layer)) {
      const int outputs = next < widths.size() ? widths[next] : layer.outputs;
      STARLING_CHECK(outputs > 0, fmt::format("the width {} for a layer of '{}'", outputs, network.text));
      ++next;
      elements.push_back(fmt::format("dense {}{}", outputs, layer.bias ? "" : " no bias"));
    } else if (layer.kind == LayerKind::batchnorm) {
      elements.emplace_back(layer.batch_statistics ? "batchnorm batch" : "batchnorm");
    } else if (layer.kind == LayerKind::dropout) {
      elements.push_back(fmt::format("dropout {}", layer.rate));
    } else if (layer.kind == LayerKind::maxpool || layer.kind == LayerKind::avgpool) {
      elements.push_back(fmt::format("{} {} stride {}{}", layer.kind == LayerKind::maxpool ? "maxpool" : "avgpool", layer.kernel_height,
                                     layer.stride, layer.ceil ? " ceil" : ""));
    } else {
      const bool activation = layer.kind == LayerKind::relu || layer.kind == LayerKind::tanh || layer.kind == LayerKind::sigmoid;
      STARLING_CHECK(activation, fmt::format("'{}' has layers that cannot be made narrower", network.text));
      elements.emplace_back(layer.kind == LayerKind::relu ? "relu" : layer.kind == LayerKind::tanh ? "tanh" : "sigmoid");
    }
  }
  elements.emplace_back(network.loss == LossKind::mse ? "mse" : "cross-entropy");
  return fmt::format("{}", fmt::join(elements, ", "));
}

Network parse_network(const std::string& model, const Problem& problem) {
  const std::string text = network_text(model, problem);
  return Parser(text, problem).parse();
}

}  // namespace starling::compute
