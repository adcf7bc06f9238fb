#include "kernels/compute_scratch.h"

#include <array>
#include <new>
#include <utility>

namespace ferry::kernels {
namespace {

constexpr std::align_val_t kAlignment{64};
// Larger pieces are returned to the system, because only long prompts need them.
constexpr size_t kMaxKept = size_t{1} << 20;

float* allocate(size_t count) {
  return static_cast<float*>(::operator new(count * sizeof(float), kAlignment));
}

void release(float* data) { ::operator delete(data, kAlignment); }

// The unused pieces of a thread. Kernels nest at most three deep.
struct Kept {
  struct Piece {
    float* data = nullptr;
    size_t capacity = 0;
  };
  std::array<Piece, 3> pieces;
  size_t count = 0;

  ~Kept() {
    while (count > 0) release(pieces[--count].data);
  }
};

thread_local Kept kept_pieces;

}  // namespace

Scratch::Scratch(size_t count) : data_(nullptr), capacity_(0) {
  if (count == 0) return;
  if (kept_pieces.count > 0) {
    const Kept::Piece piece = kept_pieces.pieces[--kept_pieces.count];
    data_ = piece.data;
    capacity_ = piece.capacity;
  }
  if (data_ != nullptr && capacity_ >= count) return;
  if (data_ != nullptr) release(data_);
  data_ = allocate(count);
  capacity_ = count;
}

Scratch::~Scratch() {
  if (data_ == nullptr) return;
  if (kept_pieces.count < kept_pieces.pieces.size() && capacity_ <= kMaxKept) {
    kept_pieces.pieces[kept_pieces.count++] = {data_, capacity_};
  } else {
    release(data_);
  }
}

}  // namespace ferry::kernels
