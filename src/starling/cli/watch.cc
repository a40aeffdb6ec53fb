// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include "starling/cli/watch.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <charconv>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "starling/base/error.h"
#include "starling/cli/bounded_http_server.h"
#include "starling/lab/report.h"

namespace starling::cli {
namespace {

using namespace std::chrono_literals;

constexpr const char* kLoopback = "127.0.0.1";
constexpr int kLargestPort = 65535;
constexpr auto kPatience = 2s;           // With pages that are to see the end.
constexpr std::size_t kMostPages = 100;  // That are remembered.
constexpr std::size_t kLongestPageName = 32;

// The library's own options would let two programs share a port.
void set_socket_options(socket_t socket) {
  const int yes = 1;
  static_cast<void>(::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes));
}

// A page of another origin can make its name lead to this machine, but not this machine to be called otherwise in the Host header.
bool is_local_host(const std::string& host) {
  const std::string name = host.substr(0, host.find(':'));
  return name == kLoopback || name == "localhost";
}

}  // namespace

struct Watch::Server {
  int port = 0;
  bool serves = false;

  std::mutex mutex;  // Guards what follows.
  std::condition_variable answered;
  std::optional<lab::LiveReport> report;
  bool ended = false;
  std::set<std::string> pages;  // Those that are open and ask again, as far as they have said; hidden ones are among them.
  std::size_t loaded = 0;       // Pages that were sent and have not asked yet: they have no name so far.
  // Requests whose answer is not out yet, each with the page that gets the last state by it, if it is one.
  std::map<const httplib::Request*, std::string> pending;

  BoundedHttpServer http;  // Last, so that its threads are gone before what they use.

  // No page is left that is to see the end.
  bool is_done() const { return pages.empty() && loaded == 0 && pending.empty(); }

  void answer_page(httplib::Response& response) {
    const std::lock_guard lock(mutex);
    response.set_content(report->page(ended), "text/html; charset=utf-8");
    if (!ended && loaded < kMostPages) ++loaded;
  }

  void answer_data(const httplib::Request& request, httplib::Response& response) {
    const std::lock_guard lock(mutex);
    const std::string page = request.get_param_value("page").substr(0, kLongestPageName);
    if (request.has_param("leaves")) {
      response.set_content("{}", "application/json");
      if (pages.erase(page) == 0 && loaded > 0) --loaded;
      return;
    }
    response.set_content(report->data(ended), "application/json");
    if (ended) pending[&request] = page;
    if (page.empty() || pages.contains(page)) return;
    if (loaded > 0) --loaded;
    if (!ended && pages.size() < kMostPages) pages.insert(page);
  }

  void answered_to(const httplib::Request& request) {
    const std::lock_guard lock(mutex);
    if (const auto entry = pending.extract(&request)) pages.erase(entry.mapped());
    answered.notify_all();
  }

  void route() {
    http.set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      {
        const std::lock_guard lock(mutex);
        pending.try_emplace(&request);
      }
      response.set_header("Cache-Control", "no-store");
      response.set_header("X-Content-Type-Options", "nosniff");
      if (is_local_host(request.get_header_value("Host"))) return httplib::Server::HandlerResponse::Unhandled;
      constexpr int kForbidden = 403;
      response.status = kForbidden;
      response.set_content("This page is for this machine alone: call it 127.0.0.1 or localhost.\n", "text/plain; charset=utf-8");
      return httplib::Server::HandlerResponse::Handled;
    });
    http.Get("/", [this](const httplib::Request&, httplib::Response& response) { answer_page(response); });
    http.Get("/data.json", [this](const httplib::Request& request, httplib::Response& response) { answer_data(request, response); });
    // Called after the answer was written, or could not be.
    http.set_logger([this](const httplib::Request& request, const httplib::Response&) { answered_to(request); });
  }
};

Watch::Watch(int port) : server_(std::make_unique<Server>()) {
  BoundedHttpServer& http = server_->http;
  http.set_socket_options(set_socket_options);
  http.set_payload_max_length(0);
  server_->route();
  server_->port = port == 0 ? http.bind_to_any_port(kLoopback) : (http.bind_to_port(kLoopback, port) ? port : -1);
  if (server_->port <= 0) {
    throw UserError(port == 0 ? fmt::format("cannot take any port of {} for --watch", kLoopback)
                              : fmt::format("port {} of {}, for --watch, is taken or not allowed; give another one, or --watch alone for "
                                            "any that is free",
                                            port, kLoopback));
  }
}

Watch::~Watch() = default;

std::string Watch::address() const { return fmt::format("http://{}:{}/", kLoopback, server_->port); }

void Watch::start(const std::string& run_path) {
  server_->report.emplace(run_path);
  server_->http.serve();
  server_->serves = true;
}

void Watch::run_has_ended() {
  const std::lock_guard lock(server_->mutex);
  server_->ended = true;
}

void Watch::finish() {
  run_has_ended();
  if (server_->serves) {
    std::unique_lock lock(server_->mutex);
    server_->answered.wait_for(lock, kPatience, [this] { return server_->is_done(); });
  }
  server_->http.end();
}

int parse_port(const std::string& text) {
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (text.empty()) return 0;
  if (error != std::errc() || end != text.data() + text.size() || port < 0 || port > kLargestPort) {
    throw UserError(fmt::format("--watch is '{}', but a port is a whole number up to {}; 0 takes any that is free", text, kLargestPort));
  }
  return port;
}

}  // namespace starling::cli
