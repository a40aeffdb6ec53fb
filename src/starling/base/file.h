// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// Files that are there completely or not at all. Every function throws UserError when the system refuses: what the file is for, its path,
// the system's reason, and a hint where there is one ("cannot write the metrics 'runs/a/metrics.jsonl': No space left on device. ...").
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

namespace starling {

// The whole file.
std::string read_file(const std::string& path, std::string_view what);

// Writes the pieces one after the other into a new or emptied file, and waits until they are on the disk. `progress` is called again and
// again while it gets on.
void write_file(const std::string& path, std::initializer_list<std::string_view> pieces, std::string_view what,
                const std::function<void()>& progress = {});

// Whoever reads the path at any time, even after a power failure, sees the old contents or the new, never a part: a temporary file in the
// same folder is written, synchronised and renamed.
void write_file_atomically(const std::string& path, std::string_view contents, std::string_view what);

// Makes a folder and those it lies in; those that exist are left as they are.
void make_folders(const std::string& path, std::string_view what);

// Renames within a file system, and waits until the folder of `to` is on the disk.
void rename_durably(const std::string& from, const std::string& to, std::string_view what);

// Waits until the names in a folder are on the disk.
void sync_folder(const std::string& path, std::string_view what);

// A file that only grows, such as a log. Not thread-safe. What append() has returned from survives the death of the process; what sync()
// has returned from also that of the machine.
class AppendFile {
 public:
  // Opens or makes the file and cuts it to at most `size` bytes.
  AppendFile(std::string path, std::uint64_t size, std::string what);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  void append(std::string_view text);
  void sync();
  std::uint64_t size() const { return size_; }

 private:
  std::string path_;
  std::string what_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

// Keeps other processes that take the same lock out, until it is destroyed or its process ends, however it ends.
class FileLock {
 public:
  // Throws UserError with `busy` as its text if another process holds the lock.
  FileLock(const std::string& path, const std::string& busy, std::string_view what);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int descriptor_ = -1;
};

}  // namespace starling
