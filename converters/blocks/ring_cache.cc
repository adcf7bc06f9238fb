#include "converters/blocks/ring_cache.h"

#include "converters/blocks/blocks.h"

namespace ferry::converters {
namespace {

// Returns the place of every token of the call in the sink, or in a circle of `turn` places behind
// it: i64 [T].
ValueId places_of_call(GraphBuilder& b, const DecoderContext& c, const AttentionSink& sink,
                       int64_t turn) {
  const ValueId positions = call_positions(b, c);
  const ValueId first = int_scalar(b, sink.sink);
  const ValueId turns = b.remainder(b.sub(positions, first), turn);
  const ValueId in_ring = b.add(turns, first);
  const ValueId in_sink = b.lt(positions, sink.sink);
  return b.where(in_sink, positions, in_ring);
}

// Returns the position that each written slot holds at the end of the call: i64 [N]. In the ring it
// is the last one that has the slot, and a written slot has one.
ValueId positions_in_slots(GraphBuilder& b, const DecoderContext& c, const AttentionSink& sink,
                           ValueId slots) {
  const ValueId before_end = b.int_sub(c.end_pos, 1);
  const ValueId last = b.arange(before_end, c.end_pos, 1);
  const ValueId age = b.remainder(b.sub(last, slots), sink.ring());
  const ValueId in_ring = b.sub(last, age);
  const ValueId in_sink = b.lt(slots, sink.sink);
  return b.where(in_sink, slots, in_ring);
}

}  // namespace

void add_ring(GraphBuilder& b, DecoderContext& c) {
  const AttentionSink& sink = *c.options.attention_sink;
  const ValueId slots_of_call = places_of_call(b, c, sink, sink.ring());
  c.rope_places = sink.rope_turn == 0 ? slots_of_call : places_of_call(b, c, sink, sink.rope_turn);
  c.write_slots = b.unsqueeze(slots_of_call, 0);
  b.name(c.write_slots, "cache_slots");
  // The smaller of end_pos and the number of slots.
  const ValueId unwritten = b.int_max(b.int_sub(sink.slots(), c.end_pos), 0);
  c.cache_end = b.int_sub(sink.slots(), unwritten);
  c.written = positions(Dim::of(b.symbol("N", sink.slots(), c.cache_end)));
  const ValueId slots = b.arange(0, c.cache_end, c.written);
  const ValueId held = positions_in_slots(b, c, sink, slots);
  const ValueId rows = b.unsqueeze(call_positions(b, c), 1);
  const ValueId distance = b.sub(rows, held);
  const ValueId not_after = b.ge(distance, 0);
  const ValueId in_window = b.lt(distance, sink.window);
  const ValueId in_sink = b.lt(slots, sink.sink);
  const ValueId seen = b.logical_and(not_after, b.logical_or(in_window, in_sink));
  KeyRange range;
  range.keys = c.written;
  const ValueId open = b.scalar(0.0F);
  const ValueId masked = b.scalar(kMaskedScore);
  range.mask = b.where(seen, open, masked);
  b.name(range.mask, "ring_mask");
  c.full.range = range;
}

}  // namespace ferry::converters
