// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/data/child_program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace starling::data {
namespace {

// Where the child's three standard files lead; paths are taken after the change of folder.
class FileActions {
 public:
  explicit FileActions(const std::string& folder) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_addchdir_np(&actions_, folder.c_str());
    posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions_, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions_, STDERR_FILENO, "errors.txt", O_WRONLY | O_CREAT | O_TRUNC, 0600);
  }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  ~FileActions() { posix_spawn_file_actions_destroy(&actions_); }

  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
};

int wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

ProgramResult run_program(const std::string& program, const std::vector<std::string>& arguments, const std::string& folder) {
  // The child changes its folder first, so a relative path would mean another file there.
  std::string path = program.find('/') == std::string::npos ? program : std::filesystem::absolute(program).string();
  std::vector<std::string> words{path};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);

  const FileActions actions(folder);
  ProgramResult result;
  pid_t child = 0;
  result.start_error = posix_spawnp(&child, path.c_str(), actions.get(), nullptr, pointers.data(), environ);
  if (result.start_error != 0) return result;
  result.code = wait_for(child);
  std::ifstream errors(std::filesystem::path(folder) / "errors.txt");
  result.errors.assign(std::istreambuf_iterator<char>(errors), {});
  return result;
}

}  // namespace starling::data
