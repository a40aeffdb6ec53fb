// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "starling/base/error.h"

namespace starling {
namespace {

const char* hint(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return " Make room on the disk, or choose a folder on another one.";
    case EACCES:
    case EPERM:
    case EROFS:
      return " Choose a folder in which you may write.";
    default:
      return "";
  }
}

// `error` is an errno. Hints are about writing.
[[noreturn]] void fail_to(std::string_view verb, std::string_view what, const std::string& path, int error) {
  throw UserError(fmt::format("cannot {} the {} '{}': {}.{}", verb, what, path, std::strerror(error), verb == "read" ? "" : hint(error)));
}

std::string folder_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

// A file descriptor that is closed at the end of its scope.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  int value() const { return value_; }

  // Closes now. False if that failed: some file systems tell of a full disk only here.
  bool close() { return ::close(std::exchange(value_, -1)) == 0; }

 private:
  int value_;
};

// False with errno set if the system refuses.
bool write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace

std::string read_file(const std::string& path, std::string_view what) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.value() < 0) fail_to("read", what, path, errno);
  std::string contents;
  std::array<char, 1 << 16> buffer{};
  while (true) {
    const ssize_t count = ::read(file.value(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_to("read", what, path, errno);
    if (count == 0) return contents;
    contents.append(buffer.data(), static_cast<std::size_t>(count));
  }
}

void write_file(const std::string& path, std::initializer_list<std::string_view> pieces, std::string_view what,
                const std::function<void()>& progress) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (file.value() < 0) fail_to("write", what, path, errno);
  // On the disk stretch by stretch, so that no single call takes as long as the whole.
  constexpr std::size_t kStretch = std::size_t{64} << 20;
  for (const std::string_view piece : pieces) {
    for (std::size_t at = 0; at < piece.size(); at += kStretch) {
      if (!write_all(file.value(), piece.substr(at, kStretch))) fail_to("write", what, path, errno);
      if (!progress) continue;
      if (piece.size() - at > kStretch && ::fdatasync(file.value()) != 0) fail_to("write", what, path, errno);
      progress();
    }
  }
  if (::fsync(file.value()) != 0 || !file.close()) fail_to("write", what, path, errno);
}

void write_file_atomically(const std::string& path, std::string_view contents, std::string_view what) {
  const std::string temporary = path + ".writing";
  try {
    write_file(temporary, {contents}, what);
    rename_durably(temporary, path, what);
  } catch (const UserError&) {
    ::unlink(temporary.c_str());
    throw;
  }
}

void make_folders(const std::string& path, std::string_view what) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) fail_to("make", what, path, error.value());
}

void rename_durably(const std::string& from, const std::string& to, std::string_view what) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail_to("write", what, to, errno);
  sync_folder(folder_of(to), what);
}

void sync_folder(const std::string& path, std::string_view what) {
  const Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.value() < 0 || ::fsync(folder.value()) != 0) fail_to("write", what, path, errno);
}

AppendFile::AppendFile(std::string path, std::uint64_t size, std::string what)
    : path_(std::move(path)), what_(std::move(what)), descriptor_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (descriptor_ < 0) fail_to("write", what_, path_, errno);
  struct stat status {};
  if (::fstat(descriptor_, &status) == 0) {
    const auto present = static_cast<std::uint64_t>(status.st_size);
    size_ = std::min(present, size);
    if (size_ == present || ::ftruncate(descriptor_, static_cast<off_t>(size_)) == 0) return;
  }
  const int error = errno;
  ::close(descriptor_);
  fail_to("write", what_, path_, error);
}

AppendFile::~AppendFile() { ::close(descriptor_); }

void AppendFile::append(std::string_view text) {
  if (!write_all(descriptor_, text)) fail_to("write", what_, path_, errno);
  size_ += text.size();
}

void AppendFile::sync() {
  if (::fsync(descriptor_) != 0) fail_to("write", what_, path_, errno);
}

FileLock::FileLock(const std::string& path, const std::string& busy, std::string_view what)
    : descriptor_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  if (descriptor_ < 0) fail_to("write", what, path, errno);
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return;
  const int error = errno;
  ::close(descriptor_);
  if (error == EWOULDBLOCK) throw UserError(busy);
  fail_to("write", what, path, error);
}

FileLock::~FileLock() { ::close(descriptor_); }

}  // namespace starling
