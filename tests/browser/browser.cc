#include "browser.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <stdexcept>

namespace ferry::pages {
namespace {

using nlohmann::json;

constexpr int kSeconds = 60;  // limit for any answer

std::filesystem::path temporary_directory() {
  std::string name = (std::filesystem::temp_directory_path() / "ferry-browser-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary directory");
  return name;
}

std::array<int, 2> new_pipe() {
  std::array<int, 2> ends{};
  // The descriptors must be above those at which Chromium expects its pipe, so that dup2 overwrites
  // none of them.
  std::array<int, 2> made{};
  if (pipe2(made.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  for (size_t i = 0; i < 2; ++i) {
    ends[i] = fcntl(made[i], F_DUPFD_CLOEXEC, 10);
    close(made[i]);
  }
  return ends;
}

std::string quoted(const std::string& text) { return json(text).dump(); }

}  // namespace

Browser::Browser() : directory_(temporary_directory()) {
  signal(SIGPIPE, SIG_IGN);
  const std::array<int, 2> commands = new_pipe();
  const std::array<int, 2> answers = new_pipe();
  to_ = commands[1];
  from_ = answers[0];
  process_ = fork();
  if (process_ == 0) launch(commands[0], answers[1]);
  close(commands[0]);
  close(answers[1]);
  attach();
}

Browser::~Browser() {
  close(to_);
  close(from_);
  kill(process_, SIGTERM);
  waitpid(process_, nullptr, 0);
  std::error_code ignored;  // a dying helper process may still write into the directory
  std::filesystem::remove_all(directory_, ignored);
}

// Runs in the child process: Chromium reads from descriptor 3 and writes to 4.
void Browser::launch(int from, int to) {
  dup2(from, 3);
  dup2(to, 4);
  const int null = ::open("/dev/null", O_RDWR);
  for (int fd = 0; fd < 3; ++fd) dup2(null, fd);
  const std::string profile = "--user-data-dir=" + (directory_ / "profile").string();
  execl(FERRY_CHROMIUM, FERRY_CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu",
        "--no-first-run", "--disable-extensions", "--disable-background-networking",
        "--disable-dev-shm-usage", "--remote-debugging-pipe", "--window-size=1400,1000",
        profile.c_str(), nullptr);
  _exit(127);
}

void Browser::attach() {
  const json page = call("Target.createTarget", {{"url", "about:blank"}});
  const json attached =
      call("Target.attachToTarget", {{"targetId", page.at("targetId")}, {"flatten", true}});
  session_ = attached.at("sessionId");
  for (const char* domain : {"Page", "Runtime", "Log", "Network"}) {
    call(std::string(domain) + ".enable");
  }
  call("Emulation.setDeviceMetricsOverride",
       {{"width", 1400}, {"height", 1000}, {"deviceScaleFactor", 1}, {"mobile", false}});
}

void Browser::open(std::string_view html, const std::string& fragment) {
  const std::filesystem::path file = directory_ / "page.html";
  std::ofstream(file, std::ios::binary) << html;
  // Only another page in between makes the browser load the file again: another fragment of the
  // same address is a jump within the page.
  navigate("about:blank");
  complaints_.clear();
  requests_.clear();
  navigate("file://" + file.string() + fragment);
}

void Browser::navigate(const std::string& address) {
  loaded_ = false;
  call("Page.navigate", {{"url", address}});
  while (!loaded_) note(next_message());
}

json Browser::value(const std::string& expression) {
  const json answer =
      call("Runtime.evaluate", {{"expression", expression}, {"returnByValue", true}});
  if (answer.contains("exceptionDetails")) {
    throw std::runtime_error(expression + ": " + answer.at("exceptionDetails").dump());
  }
  return answer.at("result").value("value", json());
}

std::string Browser::text(const std::string& selector) {
  const std::string node = "document.querySelector(" + quoted(selector) + ")";
  // Elements of SVG have no innerText.
  return value(node + "?.innerText ?? " + node + "?.textContent ?? '(absent)'");
}

bool Browser::becomes_true(const std::string& expression) {
  for (int tenths = 0; tenths < 600; ++tenths) {
    if (value("Boolean(" + expression + ")") == true) return true;
    usleep(100'000);
  }
  return false;
}

void Browser::move(double x, double y) {
  call("Input.dispatchMouseEvent", {{"type", "mouseMoved"}, {"x", x}, {"y", y}});
}

void Browser::click(double x, double y) {
  move(x, y);
  for (const char* type : {"mousePressed", "mouseReleased"}) {
    call("Input.dispatchMouseEvent",
         {{"type", type}, {"x", x}, {"y", y}, {"button", "left"}, {"clickCount", 1}});
  }
}

void Browser::click(const std::string& selector) {
  const json box =
      value("(() => { const node = document.querySelector(" + quoted(selector) +
            "); node.scrollIntoView({block: 'center'}); const b = node.getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2]; })()");
  click(box.at(0).get<double>(), box.at(1).get<double>());
}

void Browser::type(const std::string& text) { call("Input.insertText", {{"text", text}}); }

void Browser::press(const std::string& key, int code) {
  for (const char* type : {"keyDown", "keyUp"}) {
    json event = {{"type", type}, {"key", key}, {"windowsVirtualKeyCode", code}};
    if (key == "Enter" && std::string(type) == "keyDown") event["text"] = "\r";
    call("Input.dispatchKeyEvent", event);
  }
}

void Browser::show_as(const std::string& media, const std::string& scheme) {
  call("Emulation.setEmulatedMedia",
       {{"media", media},
        {"features", json::array({{{"name", "prefers-color-scheme"}, {"value", scheme}}})}});
}

void Browser::allow_scripts(bool allowed) {
  call("Emulation.setScriptExecutionDisabled", {{"value", !allowed}});
}

json Browser::call(const std::string& method, json parameters) {
  json message = {{"id", ++last_id_}, {"method", method}, {"params", std::move(parameters)}};
  if (!session_.empty()) message["sessionId"] = session_;
  send(message);
  json answer = answer_to(last_id_);
  if (answer.contains("error")) throw std::runtime_error(method + ": " + answer["error"].dump());
  return answer.value("result", json::object());
}

double Browser::processor_seconds() {
  call("Performance.enable");
  const json answer = call("Performance.getMetrics");
  for (const json& metric : answer.at("metrics")) {
    if (metric.at("name") == "ProcessTime") return metric.at("value").get<double>();
  }
  throw std::runtime_error("the browser does not tell its processor time");
}

// Messages end with a zero byte.
void Browser::send(const json& message) {
  std::string text = message.dump();
  text.push_back('\0');
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = write(to_, text.data() + done, text.size() - done);
    if (n <= 0) throw std::runtime_error("the browser has ended");
    done += static_cast<size_t>(n);
  }
}

json Browser::next_message() {
  size_t end = received_.find('\0');
  while (end == std::string::npos) {
    pollfd waiting{.fd = from_, .events = POLLIN, .revents = 0};
    if (poll(&waiting, 1, kSeconds * 1000) <= 0) throw std::runtime_error("the browser is silent");
    std::array<char, 65536> buffer{};
    const ssize_t n = read(from_, buffer.data(), buffer.size());
    if (n <= 0) throw std::runtime_error("the browser has ended");
    received_.append(buffer.data(), static_cast<size_t>(n));
    end = received_.find('\0');
  }
  json message = json::parse(received_.substr(0, end));
  received_.erase(0, end + 1);
  return message;
}

json Browser::answer_to(int id) {
  while (true) {
    json message = next_message();
    if (message.value("id", 0) == id) return message;
    note(message);
  }
}

void Browser::note(const json& event) {
  const std::string method = event.value("method", "");
  if (method == "Page.loadEventFired") loaded_ = true;
  if (method == "Runtime.exceptionThrown" || method == "Runtime.consoleAPICalled" ||
      method == "Log.entryAdded") {
    complaints_.push_back(event.at("params").dump());
  }
  if (method == "Network.requestWillBeSent") {
    requests_.push_back(event.at("params").at("request").at("url"));
  }
}

}  // namespace ferry::pages
