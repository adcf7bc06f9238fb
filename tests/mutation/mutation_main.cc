// The mutation test: every kind of wrong conversion, on every checkpoint of the test data and in
// every dtype, is verified with `ferry verify`. Prints a table. The exit code is 1 if an error was
// not caught, was not named, or could not be tried.
//
//   mutation_test [--sample] [--kind NAME]... [--model NAME]... [--dtype NAME]... [--jobs N]
//   [--all]
//
// --sample: every kind on one model to which it applies, in one dtype. --all: prints a line for
// every verdict.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tests/mutation/trial.h"

namespace ferry::mutation {
namespace {

struct Options {
  bool sample = false, every_line = false;
  std::vector<std::string> kinds, models, dtypes;
  unsigned jobs = 2;
};

bool chosen(const std::vector<std::string>& names, const std::string& name) {
  return names.empty() || std::ranges::count(names, name) > 0;
}

struct Task {
  const Kind* kind;  // null for the unchanged checkpoint
  const Model* model;
  std::vector<std::string> dtypes;
};

std::vector<Task> whole(const std::vector<Kind>& kinds, const std::vector<Model>& models,
                        const std::vector<std::string>& dtypes) {
  std::vector<Task> tasks;
  for (const Model& model : models) {
    tasks.push_back({nullptr, &model, dtypes});
    for (const Kind& kind : kinds) tasks.push_back({&kind, &model, dtypes});
  }
  return tasks;
}

// Takes every kind once. Kind n uses the first model from the n-th on to which it applies, and the
// n-th dtype, so that the kinds together use most models and all dtypes. Every model is verified
// unchanged as well, in the most common dtype.
std::vector<Task> sample(const std::vector<Kind>& kinds, const std::vector<Model>& models) {
  std::vector<Task> tasks;
  for (const Model& model : models) tasks.push_back({nullptr, &model, {"bf16"}});
  for (size_t i = 0; i < kinds.size(); ++i) {
    for (size_t m = 0; m < models.size(); ++m) {
      const Model& model = models[(5 * i + m) % models.size()];
      if (!excluded(kinds[i], model).empty()) continue;
      const std::string dtype = kinds[i].codes ? "8da8w" : kDTypes[(i + 1) % kDTypes.size()];
      tasks.push_back({&kinds[i], &model, {dtype}});
      break;
    }
  }
  return tasks;
}

std::vector<Trial> run_all(const std::vector<Task>& tasks, unsigned jobs) {
  std::vector<Trial> trials(tasks.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < tasks.size(); i = next++) {
      const Task& task = tasks[i];
      trials[i] = task.kind ? run_trial(*task.kind, *task.model, task.dtypes)
                            : run_control(*task.model, task.dtypes);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < jobs; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  return trials;
}

// -- the report

struct Count {
  int tried = 0, caught = 0, named = 0, placed = 0, seen = 0;
};

bool good(const Verdict& verdict) { return verdict.caught && verdict.named; }

// Writes "6", or "4/6" where two of six errors were not caught or not named; "-" where the kind
// does not apply.
std::string cell(const Trial& trial) {
  if (!trial.broken.empty()) return "X";
  if (!trial.excluded.empty()) return "-";
  const auto found = std::ranges::count_if(trial.verdicts, good);
  const auto all = std::ssize(trial.verdicts);
  return found == all ? std::to_string(all) : std::to_string(found) + "/" + std::to_string(all);
}

void print_table(const std::vector<Trial>& trials) {
  std::vector<std::string> kinds, models;
  std::map<std::pair<std::string, std::string>, const Trial*> at;
  for (const Trial& trial : trials) {
    if (trial.kind == "unchanged") continue;
    if (std::ranges::count(kinds, trial.kind) == 0) kinds.push_back(trial.kind);
    if (std::ranges::count(models, trial.model) == 0) models.push_back(trial.model);
    at[{trial.kind, trial.model}] = &trial;
  }
  std::printf(
      "Verdicts per kind and model: every dtype, as a wrong bundle and as a wrong conversion.\n");
  for (size_t i = 0; i < models.size(); ++i) std::printf("  %2zu %s\n", i + 1, models[i].c_str());
  std::printf("%-34s", "");
  for (size_t i = 0; i < models.size(); ++i) std::printf("%4zu", i + 1);
  std::printf("\n");
  for (const std::string& kind : kinds) {
    std::printf("%-34s", kind.c_str());
    for (const std::string& model : models) {
      const auto found = at.find({kind, model});
      std::printf("%4s", found == at.end() ? "" : cell(*found->second).c_str());
    }
    std::printf("\n");
  }
}

// Prints the reasons for "-" in the table. Where a kind has several reasons, the models are listed
// too.
void print_reasons(const std::vector<Trial>& trials) {
  std::map<std::string, std::map<std::string, std::string>> reasons;  // kind, reason, models
  for (const Trial& trial : trials) {
    if (!trial.excluded.empty()) reasons[trial.kind][trial.excluded] += " " + trial.model;
    if (!trial.invisible.empty()) {
      reasons[trial.kind]["a wrong bundle only: " + trial.invisible] += " " + trial.model;
    }
  }
  std::printf("\nNot applicable (-):\n");
  for (const auto& [kind, texts] : reasons) {
    for (const auto& [text, where] : texts) {
      std::printf("  %s: %s%s%s\n", kind.c_str(), text.c_str(), texts.size() > 1 ? ":" : "",
                  texts.size() > 1 ? where.c_str() : "");
    }
  }
}

// Prints the least margins of right conversions.
void print_controls(const std::vector<Trial>& trials) {
  int passed = 0, all = 0;
  std::map<std::string, Margins> least;
  for (const Trial& trial : trials) {
    if (trial.kind != "unchanged") continue;
    for (const Verdict& verdict : trial.verdicts) {
      all += 1;
      passed += !verdict.caught;
      Margins& margins = least[verdict.dtype];
      margins.db = std::min(margins.db, verdict.margins.db);
      margins.share = std::max(margins.share, verdict.margins.share);
    }
  }
  std::printf("\nUnchanged: %d of %d pass with margin\n", passed, all);
  for (const auto& [dtype, margins] : least) {
    std::printf("  %-4s differences at most %.1f %% of a bound", dtype.c_str(),
                100 * margins.share);
    if (margins.db < 999) std::printf(", SQNR at least %.1f dB above a floor", margins.db);
    std::printf("\n");
  }
}

void print_counts(const std::vector<Trial>& trials) {
  std::map<std::string, Count> counts;
  std::map<std::string, int> kinds;
  for (const Trial& trial : trials) {
    if (trial.kind == "unchanged") continue;
    if (!trial.verdicts.empty()) kinds[trial.kind] += 1;
    for (const Verdict& verdict : trial.verdicts) {
      for (const std::string& key :
           {verdict.dtype + " " + mode_name(verdict.mode), std::string("all")}) {
        Count& count = counts[key];
        count.tried += 1;
        count.caught += verdict.caught;
        count.named += good(verdict);
        count.placed += good(verdict) && verdict.placed;
        count.seen += verdict.seen;
      }
    }
  }
  std::printf("\n%-20s %7s %7s %7s %12s %12s\n", "", "mutants", "caught", "named", "first layer",
              "in outputs");
  for (const auto& [key, count] : counts) {
    std::printf("%-20s %7d %7d %7d %12d %12d\n", key.c_str(), count.tried, count.caught,
                count.named, count.placed, count.seen);
  }
  std::printf("%zu kinds\n", kinds.size());
}

// Prints unexpected verdicts and returns their number.
int print_failures(const std::vector<Trial>& trials, bool every_line) {
  int failures = 0;
  for (const Trial& trial : trials) {
    const std::string who = trial.kind + " " + trial.model;
    if (!trial.broken.empty()) {
      failures += 1;
      std::printf("BROKEN   %s: %s\n", who.c_str(), trial.broken.c_str());
    }
    for (const Verdict& v : trial.verdicts) {
      const bool control = trial.kind == "unchanged";
      const char* word = control                      ? (v.caught ? "REFUSED " : "right   ")
                         : good(v)                    ? "caught  "
                         : v.caught                   ? "UNNAMED "
                         : v.said.starts_with("exit") ? "ERROR   "
                                                      : "PASSED  ";
      const bool failed = control ? v.caught : !good(v);
      failures += failed;
      if (failed || every_line) {
        std::printf("%s %s %s %s: %s\n", word, who.c_str(), v.dtype.c_str(), mode_name(v.mode),
                    v.said.c_str());
      }
    }
  }
  return failures;
}

int run(const Options& options) {
  std::vector<Kind> kinds = all_kinds();
  std::erase_if(kinds, [&](const Kind& kind) { return !chosen(options.kinds, kind.name); });
  std::vector<Model> tried = models();
  std::erase_if(tried, [&](const Model& model) { return !chosen(options.models, model.name); });
  const std::vector<std::string>& dtypes = options.dtypes.empty() ? kDTypes : options.dtypes;
  const std::vector<Trial> trials =
      run_all(options.sample ? sample(kinds, tried) : whole(kinds, tried, dtypes), options.jobs);
  if (!options.sample) {
    print_table(trials);
    print_reasons(trials);
  }
  print_counts(trials);
  print_controls(trials);
  const int failures = print_failures(trials, options.every_line);
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ferry::mutation

int main(int argc, char** argv) {
  ferry::mutation::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (word == "--sample") {
      options.sample = true;
    } else if (word == "--all") {
      options.every_line = true;
    } else if (value && word == "--kind") {
      options.kinds.push_back(argv[++i]);
    } else if (value && word == "--model") {
      options.models.push_back(argv[++i]);
    } else if (value && word == "--dtype") {
      options.dtypes.push_back(argv[++i]);
    } else if (value && word == "--jobs") {
      options.jobs = static_cast<unsigned>(std::max(1, std::atoi(argv[++i])));
    } else {
      std::fprintf(stderr, "mutation_test: %s?\n", word.c_str());
      return 2;
    }
  }
  return ferry::mutation::run(options);
}
