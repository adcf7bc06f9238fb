// StateFinder finds the planned memory of a method that is state, which means that it lives from
// one call to the next.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "formats/pte/program.h"

namespace ferry::pte {

// State is planned memory that some instruction reads before any instruction has written it. It is
// found by address and not by value, because a view without a copy is another value at the same
// address. The method must have passed validation, and outlive this object.
class StateFinder {
 public:
  explicit StateFinder(const Method& method);
  // Returns the values that are state, one per address.
  const std::set<int32_t>& values() const { return state_; }

 private:
  void touch(int32_t index, bool read);
  void touch_tensor(int32_t index, bool read);
  void touch_call(const std::string& name, const std::vector<int32_t>& args);

  const Method& method_;
  std::set<std::pair<uint32_t, uint64_t>> touched_;
  std::set<int32_t> state_;
};

}  // namespace ferry::pte
