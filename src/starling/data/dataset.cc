// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/data/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "starling/base/error.h"
#include "starling/data/cifar_file.h"
#include "starling/data/idx_file.h"
#include "starling/data/specification.h"
#include "starling/data/synthetic.h"

namespace starling::data {
namespace {

constexpr int kIdxClasses = 10;
constexpr std::uint64_t kMostSamples = 100'000'000;
constexpr std::uint64_t kMostNumbers = std::uint64_t{1} << 28;  // Inputs of a synthetic set: a gigabyte.

const std::vector<std::string> kIdxFiles{"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
                                         "t10k-labels-idx1-ubyte"};
const std::vector<std::string> kCifarFiles{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                           "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};

struct Kind {
  std::string name;
  std::string summary;
  std::string remedy;
  std::vector<std::string> files;
  std::vector<std::string> class_names;
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> kAll{
      {"fashion-mnist",
       "70,000 photographs of clothes, 28 x 28 grey, 10 classes",
       "the Debian package dataset-fashion-mnist brings it",
       kIdxFiles,
       {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"}},
      {"mnist",
       "70,000 handwritten digits, 28 x 28 grey, 10 classes",
       "'starling data fetch mnist' brings it",
       kIdxFiles,
       {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}},
      {"cifar10",
       "60,000 photographs of animals and vehicles, 32 x 32 in colour, 10 classes",
       "'starling data fetch cifar10' brings it",
       kCifarFiles,
       {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"}},
      {"blobs", "made: Gaussian clusters (samples, classes, dimension, spread, seed)", "", {}, {}},
      {"quadratic", "made: least squares with a known optimum (dimension, condition, noise, samples, seed)", "", {}, {}},
      {"logistic", "made: two classes with a known optimum (dimension, samples, seed)", "", {}, {}},
  };
  return kAll;
}

bool is_present(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

std::vector<std::string> places(const std::string& name, const std::string& folder) {
  if (folder.empty()) return {"/usr/share/datasets/" + name, "data/" + name};
  return {(std::filesystem::path(folder) / name).string(), folder};
}

// The first of the places that holds any of the files, or "".
std::string find_folder(const Kind& kind, const std::string& folder) {
  for (std::string& place : places(kind.name, folder)) {
    const bool found = std::any_of(kind.files.begin(), kind.files.end(), [&](const std::string& file) {
      return is_present(std::filesystem::path(place) / file) || is_present(std::filesystem::path(place) / (file + ".gz"));
    });
    if (found) return std::move(place);
  }
  return "";
}

std::string require_folder(const Kind& kind, const std::string& folder) {
  std::string found = find_folder(kind, folder);
  if (!found.empty()) return found;
  const std::vector<std::string> looked = places(kind.name, folder);
  throw UserError(fmt::format("there are no files of {} in '{}' or '{}': {}", kind.name, looked[0], looked[1], kind.remedy));
}

// Reads FOLDER/NAME, or FOLDER/NAME.gz where that is what is there.
std::string idx_path(const std::string& folder, const std::string& name) {
  std::string plain = (std::filesystem::path(folder) / name).string();
  return !is_present(plain) && is_present(plain + ".gz") ? plain + ".gz" : plain;
}

Samples read_idx(const Kind& kind, const std::string& folder, std::size_t first_file) {
  const std::string images_path = idx_path(folder, kind.files[first_file]);
  const std::string labels_path = idx_path(folder, kind.files[first_file + 1]);
  IdxImages images = parse_idx_images(read_data_file(images_path, kind.remedy), fmt::format("'{}'", images_path));
  const Bytes labels = parse_idx_labels(read_data_file(labels_path, kind.remedy), kIdxClasses, fmt::format("'{}'", labels_path));
  if (images.count != labels.size()) {
    throw UserError(fmt::format("'{}' holds {} images, but '{}' holds {} labels: they do not belong together", images_path, images.count,
                                labels_path, labels.size()));
  }
  Samples samples;
  samples.shape = {.channels = 1, .height = images.rows, .width = images.columns};
  samples.count = images.count;
  samples.bytes = std::move(images.pixels);
  samples.labels.assign(labels.begin(), labels.end());
  samples.classes = kIdxClasses;
  return samples;
}

Samples read_cifar(const Kind& kind, const std::string& folder, std::size_t first_file, std::size_t last_file) {
  Samples samples;
  samples.shape = {.channels = 3, .height = 32, .width = 32};
  samples.classes = kCifarClasses;
  samples.bytes.reserve((last_file - first_file) * kCifarBatchRecords * kCifarPixelBytes);
  for (std::size_t file = first_file; file < last_file; ++file) {
    const std::string path = (std::filesystem::path(folder) / kind.files[file]).string();
    const CifarBatch batch = parse_cifar_batch(read_data_file(path, kind.remedy), kCifarBatchRecords, fmt::format("'{}'", path));
    samples.bytes.insert(samples.bytes.end(), batch.pixels.begin(), batch.pixels.end());
    samples.labels.insert(samples.labels.end(), batch.labels.begin(), batch.labels.end());
  }
  samples.count = samples.labels.size();
  return samples;
}

// Keeps the first `count` samples; 0 keeps all.
void take_first(Samples& samples, std::uint64_t count, const std::string& key, const std::string& specification) {
  if (count == 0) return;
  if (count > samples.count) {
    throw UserError(fmt::format("'{}' of the data set '{}' is {}, but there are {} samples", key, specification, count, samples.count));
  }
  samples.count = static_cast<std::size_t>(count);
  samples.bytes.resize(samples.count * samples.shape.size());
  samples.bytes.shrink_to_fit();
  samples.labels.resize(samples.count);
}

Dataset load_files(const Kind& kind, Specification& specification, const std::string& folder) {
  const std::uint64_t train = specification.integer("train", 0, 1, kMostSamples);
  const std::uint64_t test = specification.integer("test", 0, 1, kMostSamples);
  specification.reject_unknown();
  const std::string found = require_folder(kind, folder);
  Dataset dataset;
  dataset.class_names = kind.class_names;
  const bool cifar = kind.name == "cifar10";
  dataset.train = cifar ? read_cifar(kind, found, 0, 5) : read_idx(kind, found, 0);
  dataset.test = cifar ? read_cifar(kind, found, 5, 6) : read_idx(kind, found, 2);
  if (dataset.train.shape != dataset.test.shape) {
    throw UserError(
        fmt::format("the images for training in '{}' have {} x {} pixels, but those for testing {} x {}: they do not belong together",
                    found, dataset.train.shape.height, dataset.train.shape.width, dataset.test.shape.height, dataset.test.shape.width));
  }
  take_first(dataset.train, train, "train", specification.text());
  take_first(dataset.test, test, "test", specification.text());
  dataset.train.standardisation = standardise(dataset.train);
  dataset.test.standardisation = dataset.train.standardisation;
  return dataset;
}

void check_size(const Specification& specification, std::uint64_t samples, std::uint64_t dimension) {
  if (samples <= kMostNumbers / dimension) return;
  throw UserError(fmt::format("the data set '{}' has {} samples of {} numbers, but at most {} numbers are made", specification.text(),
                              samples, dimension, kMostNumbers));
}

Dataset load_blobs(Specification& specification) {
  BlobsOptions options;
  options.samples = specification.integer("samples", options.samples, 1, kMostSamples);
  options.classes = specification.integer("classes", options.classes, 2, 1000);
  options.dimension = specification.integer("dimension", options.dimension, 1, 100'000);
  options.spread = specification.number("spread", options.spread, 0, 1e6);
  options.seed = specification.integer("seed", options.seed, 0, ~std::uint64_t{0});
  specification.reject_unknown();
  check_size(specification, options.samples, options.dimension);
  return make_blobs(options);
}

Dataset load_quadratic(Specification& specification) {
  QuadraticOptions options;
  options.dimension = specification.integer("dimension", options.dimension, 1, 100'000);
  options.condition = specification.number("condition", options.condition, 1, 1e12);
  options.noise = specification.number("noise", options.noise, 0, 1e6);
  options.samples = specification.integer("samples", options.samples, 1, kMostSamples);
  options.seed = specification.integer("seed", options.seed, 0, ~std::uint64_t{0});
  specification.reject_unknown();
  check_size(specification, options.samples, options.dimension);
  return make_quadratic(options);
}

Dataset load_logistic(Specification& specification) {
  LogisticOptions options;
  options.dimension = specification.integer("dimension", options.dimension, 1, 100'000);
  options.samples = specification.integer("samples", options.samples, 1, kMostSamples);
  options.seed = specification.integer("seed", options.seed, 0, ~std::uint64_t{0});
  specification.reject_unknown();
  check_size(specification, options.samples, options.dimension);
  return make_logistic(options);
}

Dataset load_kind(const Kind& kind, Specification& specification, const std::string& folder) {
  if (!kind.files.empty()) return load_files(kind, specification, folder);
  if (kind.name == "blobs") return load_blobs(specification);
  if (kind.name == "quadratic") return load_quadratic(specification);
  return load_logistic(specification);
}

}  // namespace

std::vector<std::string> dataset_names() {
  std::vector<std::string> names;
  for (const Kind& kind : kinds()) names.push_back(kind.name);
  return names;
}

Dataset load_dataset(const std::string& specification, const std::string& folder) {
  Specification parsed(specification, "data set");
  for (const Kind& kind : kinds()) {
    if (kind.name != parsed.name()) continue;
    Dataset dataset = load_kind(kind, parsed, folder);
    dataset.name = specification;
    return dataset;
  }
  throw UserError(fmt::format("the data set is '{}', but it is one of {}.{}", specification, fmt::join(dataset_names(), ", "),
                              nearest_name_hint(parsed.name(), dataset_names())));
}

std::vector<DatasetEntry> list_datasets(const std::string& folder) {
  std::vector<DatasetEntry> entries;
  for (const Kind& kind : kinds()) {
    entries.push_back({.name = kind.name, .summary = kind.summary, .remedy = kind.remedy, .folder = find_folder(kind, folder)});
  }
  return entries;
}

}  // namespace starling::data
