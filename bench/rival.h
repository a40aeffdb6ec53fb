// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Other programs that train, and pictures to train on.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "starling/base/random.h"
#include "starling/data/samples.h"

namespace starling::bench {

// A program that answers "MODEL BATCH SECONDS" with "NAME=SAMPLES_PER_SECOND ..." for as long as it is asked.
class Rival {
 public:
  explicit Rival(const std::vector<std::string>& command) {
    int to[2];
    int from[2];
    // A rival that is started later must not hold the pipes of this one open: it would never see the end of its input.
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) return;
    child_ = fork();
    if (child_ == 0) {
      dup2(to[0], 0);
      dup2(from[1], 1);
      // One thread, as everybody: set_num_threads does not reach the BLAS under LibTorch.
      setenv("OPENBLAS_NUM_THREADS", "1", 1);
      setenv("OMP_NUM_THREADS", "1", 1);
      std::vector<char*> arguments;
      for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
      arguments.push_back(nullptr);
      execvp(arguments[0], arguments.data());
      _exit(127);
    }
    close(to[0]);
    close(from[1]);
    in_ = fdopen(to[1], "w");
    out_ = fdopen(from[0], "r");
    char line[256];
    ready_ = std::fgets(line, sizeof(line), out_) != nullptr && std::string_view(line) == "ready\n";
  }
  Rival(const Rival&) = delete;
  Rival& operator=(const Rival&) = delete;
  ~Rival() { end(); }

  // Returns the most memory that the program ever had, in bytes.
  double end() {
    if (child_ < 0) return 0;
    std::fclose(in_);
    std::fclose(out_);
    rusage usage{};
    wait4(child_, nullptr, 0, &usage);
    child_ = -1;
    return static_cast<double>(usage.ru_maxrss) * 1024;
  }

  std::map<std::string, double> measure(const std::string& model, std::size_t batch, double seconds) {
    std::map<std::string, double> results;
    char line[256];
    if (!ready_) return results;
    fmt::print(in_, "{} {} {}\n", model, batch, seconds);
    std::fflush(in_);
    if (std::fgets(line, sizeof(line), out_) == nullptr) return results;
    for (char* word = std::strtok(line, " \n"); word != nullptr; word = std::strtok(nullptr, " \n")) {
      const std::string_view text(word);
      const std::size_t equals = text.find('=');
      results[std::string(text.substr(0, equals))] = std::atof(word + equals + 1);
    }
    return results;
  }

 private:
  pid_t child_ = -1;
  FILE* in_ = nullptr;
  FILE* out_ = nullptr;
  bool ready_ = false;
};

inline data::Samples random_images(std::size_t count) {
  data::Samples samples;
  samples.shape = {1, 28, 28};
  samples.count = count;
  samples.classes = 10;
  samples.standardisation = {{.scale = 0.011f, .shift = -0.8f}};
  RandomStream random(1, 0, "images");
  for (std::size_t i = 0; i < count * 784; ++i) samples.bytes.push_back(static_cast<std::uint8_t>(random.below(256)));
  for (std::size_t i = 0; i < count; ++i) samples.labels.push_back(static_cast<std::int32_t>(i % 10));
  return samples;
}

}  // namespace starling::bench
