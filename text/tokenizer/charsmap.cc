#include "text/tokenizer/charsmap.h"

#include <utf8proc.h>

#include <algorithm>

#include "core/utf8.h"

namespace ferry::text {
namespace {

constexpr size_t kMaxCluster = 6;  // in bytes; larger clusters are mapped character by character

uint32_t u32_at(std::string_view bytes, size_t at) {
  const auto byte = [&](size_t i) {
    return static_cast<uint32_t>(static_cast<unsigned char>(bytes[at + i]));
  };
  return byte(0) | byte(1) << 8 | byte(2) << 16 | byte(3) << 24;
}

// The accessors below read the bit fields of a unit of the double array.
bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t value_of(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t label_of(uint32_t unit) { return unit & 0x800000FF; }
uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & 1U << 9) >> 6); }

// Returns the end of the grapheme cluster that begins at `at`.
size_t cluster_end(std::string_view text, size_t at) {
  utf8::Char c = utf8::decode_valid(text, at);
  size_t end = at + c.size;
  utf8proc_int32_t state = 0;
  while (end < text.size()) {
    const utf8::Char next = utf8::decode_valid(text, end);
    if (c.value < 0x80 && next.value < 0x80 && c.value != '\r') break;
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(c.value),
                                         static_cast<utf8proc_int32_t>(next.value), &state)) {
      break;
    }
    end += next.size;
    c = next;
  }
  return end;
}

}  // namespace

Result<Charsmap> Charsmap::parse(std::string_view bytes, const std::string& where) {
  if (bytes.size() < 4) return bad_input(where + ": shorter than 4 bytes");
  const size_t size = u32_at(bytes, 0);
  if (size == 0 || size % 4 != 0 || size > bytes.size() - 4) {
    return bad_input(where + ": the size of the trie is wrong");
  }
  Charsmap map;
  map.where_ = where;
  map.units_.resize(size / 4);
  for (size_t i = 0; i < map.units_.size(); ++i) map.units_[i] = u32_at(bytes, 4 + 4 * i);
  map.texts_ = bytes.substr(4 + size);
  if (!utf8::is_valid(map.texts_)) return bad_input(where + ": the texts are not valid UTF-8");
  return map;
}

Charsmap::Found Charsmap::text_at(uint32_t offset) const {
  if (offset > texts_.size()) return {{}, false, true};
  const size_t end = std::min(texts_.find('\0', offset), texts_.size());
  const std::string_view text = std::string_view(texts_).substr(offset, end - offset);
  if (!text.empty() && (static_cast<unsigned char>(text[0]) & 0xC0) == 0x80)
    return {{}, false, true};
  return {text, true, false};
}

Charsmap::Found Charsmap::find(std::string_view part) const {
  size_t node = offset_of(units_[0]);
  for (const char c : part) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == 0) break;
    node ^= byte;
    if (node >= units_.size()) return {{}, false, true};
    const uint32_t unit = units_[node];
    if (label_of(unit) != byte) break;
    node ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    if (node >= units_.size()) return {{}, false, true};
    return text_at(value_of(units_[node]));
  }
  return {};
}

Result<Charsmap::Longest> Charsmap::longest(std::string_view text) const {
  const auto damaged = [&] { return bad_input(where_ + ": the trie leads out of the map"); };
  Longest out;
  size_t node = offset_of(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == 0) break;
    node ^= byte;
    if (node >= units_.size()) return damaged();
    const uint32_t unit = units_[node];
    if (label_of(unit) != byte) break;
    node ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    if (node >= units_.size()) return damaged();
    const Found found = text_at(value_of(units_[node]));
    if (found.damaged) return damaged();
    out = {found.text, i + 1};
  }
  return out;
}

Status Charsmap::map_cluster(std::string_view cluster, std::string& out) const {
  const auto map = [&](std::string_view part) {
    const Found found = find(part);
    if (found.known) out += found.text;
    return found;
  };
  Found found;
  if (cluster.size() < kMaxCluster) found = map(cluster);
  for (size_t at = 0; !found.known && !found.damaged && at < cluster.size();) {
    const std::string_view part = cluster.substr(at, utf8::decode_valid(cluster, at).size);
    const Found one = map(part);
    if (one.damaged) found = one;
    if (!one.known && !one.damaged) out += part;
    at += part.size();
  }
  if (found.damaged) return bad_input(where_ + ": the trie leads out of the map");
  return {};
}

Status Charsmap::apply(std::string& text, size_t most) const {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t end = cluster_end(text, at);
    FERRY_RETURN_IF_ERROR(map_cluster(std::string_view(text).substr(at, end - at), out));
    if (out.size() > most) return bad_input(where_ + ": the text becomes too long");
    at = end;
  }
  text = std::move(out);
  return {};
}

}  // namespace ferry::text
