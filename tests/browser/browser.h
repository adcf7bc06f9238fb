// Browser: a headless Chromium that is driven over its debugging pipe. Pages are files on disk.
// Events of mouse and keys reach them as those of a real user do.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ferry::pages {

class Browser {
 public:
  Browser();
  ~Browser();
  Browser(const Browser&) = delete;
  Browser& operator=(const Browser&) = delete;

  // Opens `html` as a file, with `fragment` after its address ("#find=..."), and waits until it has
  // loaded. Clears complaints().
  void open(std::string_view html, const std::string& fragment = "");

  // Returns the value of a JavaScript expression in the page.
  nlohmann::json value(const std::string& expression);
  std::string text(const std::string& selector);
  // Waits until the expression is true; false after 60 seconds.
  bool becomes_true(const std::string& expression);

  void click(double x, double y);
  void move(double x, double y);
  void click(const std::string& selector);
  void type(const std::string& text);
  void press(const std::string& key, int code);  // code: the key's code in the numbering of Windows

  // media: "screen" or "print"; scheme: "light" or "dark".
  void show_as(const std::string& media, const std::string& scheme);
  void allow_scripts(bool allowed);
  nlohmann::json call(const std::string& method,
                      nlohmann::json parameters = nlohmann::json::object());

  // Returns the processor time that the process of the page has used since its start, in seconds.
  double processor_seconds();

  // Messages of the console, refused loads and exceptions, and the addresses that the page
  // requested.
  const std::vector<std::string>& complaints() const { return complaints_; }
  const std::vector<std::string>& requests() const { return requests_; }

 private:
  void launch(int from, int to);
  void attach();
  void navigate(const std::string& address);
  void send(const nlohmann::json& message);
  nlohmann::json next_message();
  nlohmann::json answer_to(int id);
  void note(const nlohmann::json& event);

  std::filesystem::path directory_;
  pid_t process_ = -1;
  int to_ = -1;
  int from_ = -1;
  int last_id_ = 0;
  bool loaded_ = false;
  std::string session_;
  std::string received_;
  std::vector<std::string> complaints_;
  std::vector<std::string> requests_;
};

}  // namespace ferry::pages
