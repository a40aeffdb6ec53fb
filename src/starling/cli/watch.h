// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
//
// `starling train --watch`: the report page of a run while it goes on, for browsers on this machine.
//
//   Watch watch(0);                  // Takes a port, or throws.
//   watch.start("runs/a");           // Serves from now on, at watch.address().
//   trainer.run();
//   watch.finish();                  // Open pages get the last state, then the server is gone.
//
// The server reads the files of the run as anybody could, in threads of low priority, and only when a page asks: without a page open the
// training is as fast as without a server.
#pragma once

#include <memory>
#include <string>

namespace starling::cli {

// Used by one thread.
class Watch {
 public:
  // Takes the port on 127.0.0.1; 0 takes any that is free. Throws UserError if it is taken.
  explicit Watch(int port);
  // Ends the server, if finish() has not.
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // "http://127.0.0.1:8080/"
  std::string address() const;

  void start(const std::string& run_path);

  // The run is over, and whoever asks from now on hears of it.
  void run_has_ended();

  // After that: answers the pages that are open once more, for at most two seconds, and ends the server.
  void finish();

 private:
  struct Server;
  std::unique_ptr<Server> server_;
};

// Reads the value of --watch, "" meaning any free port. Throws UserError if it is no port.
int parse_port(const std::string& text);

}  // namespace starling::cli
