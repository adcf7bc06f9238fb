// Profile measures where the time of executions goes: by stage, method, operator and weight.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace ferry::runner {

// A Profile is filled by the methods whose MethodOptions name it, and must outlive them. It is not
// thread-safe, as they are not.
class Profile {
 public:
  using Clock = std::chrono::steady_clock;

  // The time of all instructions of a stage with one operator and one weight. Layers count
  // together.
  struct Row {
    std::string stage, method, op;
    std::string weight;  // such as "layers.*.attention.wq.weight"; empty for none
    int64_t calls = 0;
    double seconds = 0;
  };

  // The instructions of one method. Methods use it, and nobody else.
  class Steps {
   public:
    void add(size_t step, Clock::duration time) {
      Times& times = stages_[stage_][step];
      times.time += time;
      ++times.calls;
    }

   private:
    friend Profile;
    struct Times {
      Clock::duration time = {};
      int64_t calls = 0;
    };
    std::string method_;
    std::vector<std::string> ops_, weights_;  // per instruction
    std::vector<std::vector<Times>> stages_;  // per stage, per instruction
    size_t stage_ = 0;
  };

  // Names the stage of the executions that follow, such as "prompt". A name may return.
  void begin(const std::string& stage);
  // Returns what was measured, by stage in their order, then by time, most first.
  std::vector<Row> rows() const;

  Steps& add_method(std::string method, std::vector<std::string> ops,
                    std::vector<std::string> weights);

 private:
  void enter(Steps& steps) const;

  std::vector<std::string> stages_ = {"execution"};
  size_t stage_ = 0;
  std::deque<Steps> methods_;
};

}  // namespace ferry::runner
