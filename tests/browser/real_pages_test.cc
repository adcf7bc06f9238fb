// Pages of real results: the pages show the values that the program writes.
#include <fstream>
#include <sstream>

#include "../cli/ferry_process.h"
#include "page_test.h"

namespace ferry::pages {
namespace {

const std::string kCheckpoint = FERRY_TESTDATA "/golden/qwen3";
const std::string kReference = kCheckpoint + "/golden.safetensors";

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class RealPages : public PageTest {
 protected:
  std::string path(const std::string& name) const { return dir_ / name; }

  // Converts the checkpoint to a bundle of that name.
  std::string bundle(const std::string& name, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"convert", kCheckpoint, "-o", path(name), "--quiet"};
    words.insert(words.end(), more.begin(), more.end());
    EXPECT_EQ(run_ferry(words).code, 0);
    return path(name);
  }

  // Returns a copy of the checkpoint whose config has another base of RoPE.
  std::string wrong_checkpoint() {
    const std::string copy = path("wrong");
    std::filesystem::copy(kCheckpoint, copy);
    auto config = nlohmann::json::parse(text_of(copy + "/config.json"));
    config["rope_theta"] = 100.0;
    if (config.contains("rope_parameters")) config["rope_parameters"]["rope_theta"] = 100.0;
    std::ofstream(copy + "/config.json") << config;
    return copy;
  }

 private:
  TempDir dir_;
};

TEST_F(RealPages, AuditOfABundle) {
  const std::string made = bundle("b");
  ASSERT_EQ(run_ferry({"audit", made, "--html", path("a.html")}).code, 0);
  const auto result = run_ferry({"audit", made, "--json"}).json().at("result");
  browser().open(text_of(path("a.html")));
  expect_no_complaint();
  EXPECT_EQ(browser().text("h1"), "b");
  // The page shows all items, every view, and the total to the byte.
  EXPECT_EQ(browser().value("document.querySelector('#items .table-block').dataset.rows"),
            std::to_string(result.at("items").size()));
  EXPECT_EQ(
      browser().value("document.querySelector('.tile .note-line').innerText.replaceAll(',', '')"
                      ".split(' ')[0]"),
      std::to_string(result.at("totals").at("bytes").get<int64_t>()));
  for (size_t button = 1; button <= 6; ++button) {
    browser().click("#views .choice button:nth-of-type(" + std::to_string(button) + ")");
    EXPECT_GT(browser().value("document.querySelectorAll('#views tbody tr').length"), 1) << button;
  }
  browser().click("#map .choice:last-of-type button:nth-of-type(3)");
  EXPECT_NE(browser().text("#map .level").find("state"), std::string::npos);
  expect_no_complaint();
  expect_readable(text_of(path("a.html")));
}

TEST_F(RealPages, DifferenceOfTwoBundles) {
  const std::string old = bundle("f32");
  const std::string now = bundle("bf16", {"--dtype", "bf16"});
  ASSERT_EQ(run_ferry({"audit", now, "--diff", old, "--html", path("d.html")}).code, 0);
  browser().open(text_of(path("d.html")), "#changes.find=embeddings");
  EXPECT_EQ(browser().text("#diff > .table-block tbody th"), "tok_embeddings.weight");
  EXPECT_NE(browser()
                .text("#diff > .table-block tbody")
                .find("\xe2\x88\x92"
                      "50.00 %"),
            std::string::npos);
  EXPECT_NE(browser().text("#diff > .table-block tbody").find("f32 -> bf16"), std::string::npos);
  expect_no_complaint();
}

TEST_F(RealPages, Parity) {
  const std::string made = bundle("b");
  ASSERT_EQ(run_ferry({"verify", made, "--checkpoint", kCheckpoint, "--reference", kReference,
                       "--report", path("p.html")})
                .code,
            0);
  browser().open(text_of(path("p.html")));
  expect_no_complaint();
  EXPECT_NE(browser().value("document.querySelector('.banner.good')"), nullptr);
  EXPECT_EQ(browser().value("document.querySelectorAll('.marked').length"), 0);
  EXPECT_NE(browser().text("#compared").find("Proven:"), std::string::npos);
  EXPECT_GT(browser().value("document.querySelectorAll('#positions .heat').length"), 50);
  EXPECT_EQ(browser().value("document.querySelectorAll('.token.differs').length"), 0);
  EXPECT_EQ(browser().text("#derived .verdict").substr(0, 3), "\xe2\x9c\x93");
  expect_readable(text_of(path("p.html")));
}

TEST_F(RealPages, FirstDivergenceIsMarked) {
  const std::string wrong = wrong_checkpoint();
  ASSERT_EQ(run_ferry({"convert", wrong, "-o", path("b"), "--quiet"}).code, 0);
  ASSERT_EQ(
      run_ferry({"verify", path("b"), "--reference", kReference, "--report", path("p.html")}).code,
      1);
  browser().open(text_of(path("p.html")));
  expect_no_complaint();
  EXPECT_NE(browser().value("document.querySelector('.banner.bad')"), nullptr);
  EXPECT_EQ(browser().text("#layers .marked text"), "first divergence: cache.0.key");
  // The list at the top of the details chooses the other prompt.
  const std::string list = "document.querySelector('#prompts label:last-of-type select')";
  browser().value("(() => { const s = " + list +
                  "; s.selectedIndex = 1; "
                  "s.dispatchEvent(new Event('change')); })()");
  EXPECT_NE(browser().value("location.hash").get<std::string>().find("prompt="), std::string::npos);
  browser().value(
      "(() => { const s = document.querySelector('#layers .toolbar select'); "
      "s.value = 'beyond'; s.dispatchEvent(new Event('change')); })()");
  EXPECT_EQ(browser().text("#layers tbody th"), "cache.0.key");
  expect_no_complaint();
  expect_readable(text_of(path("p.html")));
}

TEST_F(RealPages, Batch) {
  std::filesystem::create_directory(path("bad"));
  std::ofstream(path("bad") + "/config.json") << "{";
  std::ofstream(path("bad") + "/model.safetensors") << "no tensors";
  std::ofstream plan(path("plan.jsonl"));
  const nlohmann::json good = {{"id", "good"},
                               {"input", kCheckpoint},
                               {"output", path("out/good")},
                               {"verify", {{"reference", kReference}}}};
  plan << good << "\n"
       << nlohmann::json{{"id", "bad"}, {"input", path("bad")}, {"output", path("out/bad")}}
       << "\n";
  plan.close();
  run_ferry_once({"batch", "run", path("plan.jsonl"), "--workers", "1"});
  run_ferry_once({"batch", "report", path("plan.jsonl"), "-o", path("b.html")});
  browser().open(text_of(path("b.html")));
  expect_no_complaint();
  EXPECT_EQ(browser().text("h1"), "plan.jsonl");
  EXPECT_EQ(browser().text(".tiles dd"), "1 / 2");
  EXPECT_EQ(browser().value("document.querySelectorAll('#failures tbody tr').length"), 1);
  browser().value(
      "(() => { const s = document.querySelector('#tasks select[aria-label^=State]'); "
      "s.value = 'failed'; s.dispatchEvent(new Event('change')); })()");
  EXPECT_EQ(browser().value("document.querySelectorAll('#tasks tbody tr').length"), 1);
  EXPECT_NE(browser().text("#tasks tbody").find("bad"), std::string::npos);
  expect_no_complaint();
  expect_readable(text_of(path("b.html")));
}

}  // namespace
}  // namespace ferry::pages
