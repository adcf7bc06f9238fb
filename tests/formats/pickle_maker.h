// Writes pickles of state dicts as torch.save does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ferry {

// An f32 tensor in the storage `storage`.
struct PickleTensor {
  std::string name, storage;
  uint32_t storage_elements = 0;
  std::vector<uint32_t> shape, strides;
};

namespace pickle_maker {

inline std::string unicode(const std::string& s) {
  return std::string{'X', static_cast<char>(s.size()), 0, 0, 0} + s;
}

inline std::string number(uint32_t n) {
  return "J" + std::string(reinterpret_cast<const char*>(&n), sizeof n);
}

inline std::string tuple(const std::vector<uint32_t>& numbers) {
  std::string out = "(";
  for (const uint32_t n : numbers) out += number(n);
  return out + "t";
}

}  // namespace pickle_maker

inline std::string make_pickle(const std::vector<PickleTensor>& tensors) {
  using namespace pickle_maker;
  std::string out = "\x80\x02}(";
  for (const PickleTensor& t : tensors) {
    out += unicode(t.name) + "ctorch._utils\n_rebuild_tensor_v2\n((" + unicode("storage") +
           "ctorch\nFloatStorage\n" + unicode(t.storage) + unicode("cpu") +
           number(t.storage_elements) + "tQ" + number(0) + tuple(t.shape) + tuple(t.strides) +
           "\x89"
           "ccollections\nOrderedDict\n)RtR";
  }
  return out + "u.";
}

}  // namespace ferry
