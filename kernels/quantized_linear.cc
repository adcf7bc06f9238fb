#include "kernels/quantized_linear.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/compute_scratch.h"
#include "kernels/quantized_kernels.h"

namespace ferry::kernels {

// The sums of a matrix, in one of the two forms of CodedProduct.
struct PackedMatrix::Impl {
  CodedMatrix matrix;
  std::vector<float> sums;
  std::vector<int32_t> code_sums;
  bool has_sums = false;  // if false, the next product fills the sums
};

namespace {

// For up to this many rows of activations each row of the matrix is multiplied as it is stored. For
// more rows than that, and than those of InstructionSet::several, it is copied into tiles first.
constexpr size_t kFewCodedRows = 2;
// One parallel region has at most this many tasks.
constexpr size_t kMaxTasks = 16;
// A task should have at least this many bytes of the matrix, and this many products. Each task
// waits for its first bytes, and fetches bytes behind its last ones: with 256 KiB, Qwen3-0.6B
// decoded 1.14 times as many tokens per second as with 32 KiB.
constexpr size_t kTaskBytes = size_t{1} << 18;
constexpr size_t kTaskValues = size_t{1} << 15;
constexpr size_t kTaskProducts = size_t{1} << 20;

size_t ceil_div(size_t a, size_t b) { return (a + b - 1) / b; }

bool has_row_scales(const CodedMatrix& m) { return m.bits == 8 && Groups(m).count == 1; }

// Returns whether sums of products fit 32 bits in every order, and groups are whole blocks.
bool is_vectorised(const CodedMatrix& m) {
  const Groups groups(m);
  if (m.bits == 8) return groups.count == 1 && m.columns <= int64_t{1} << 16;
  return (groups.count == 1 || groups.columns % kBlockColumns == 0) && m.columns <= int64_t{1}
                                                                                        << 19;
}

// Returns whether `few4` supports the groups of the matrix.
bool fits_few(const CodedMatrix& m) {
  const Groups groups(m);
  return m.bits == 8 || groups.count == 1 || groups.columns == kBlockColumns ||
         groups.columns % (2 * kBlockColumns) == 0;
}

template <class T>
const T* data_or_null(const std::vector<T>& values) {
  return values.empty() ? nullptr : values.data();
}

CodedProduct product_of(const LinearTask& task) {
  PackedMatrix::Impl& impl = task.matrix->impl();
  return {&impl.matrix, data_or_null(impl.sums), data_or_null(impl.code_sums), task.bias, task.out};
}

// Returns whether InstructionSet::several computes the product with `m` rows of activations.
bool fits_several(const InstructionSet& set, const CodedMatrix& w, size_t m) {
  if (w.columns == 0) return false;
  if (w.bits == 8) return has_row_scales(w) && m > 1 && m <= set.most_several8;
  return Groups(w).columns == kBlockColumns && m > 1 && m <= set.most_several4;
}

// How the rows of a product are computed, and how many of them are one piece.
struct Plan {
  CodedProduct product;
  ProductFunction* function = nullptr;
  size_t step = 0, pieces = 0;
  // The matrix whose sums are to be filled, if any.
  PackedMatrix::Impl* unsummed = nullptr;
  const InstructionSet* set = nullptr;
};

Plan plan(const InstructionSet& wanted, const CodedProduct& product, size_t m, size_t threads) {
  const CodedMatrix& w = *product.matrix;
  const InstructionSet& set = is_vectorised(w) ? wanted : quantized_portable();
  const auto rows = static_cast<size_t>(w.rows), columns = static_cast<size_t>(w.columns);
  const size_t share = ceil_div(rows, 4 * threads);
  const size_t of_bytes = ceil_div(kTaskBytes, row_bytes(w) + 1);
  ProductFunction* function = w.bits == 4 ? set.many4 : set.many8;
  size_t work = ceil_div(kTaskProducts, m * columns + 1), multiple = set.tile_rows;
  if (fits_several(set, w, m)) {
    function = set.several;
    work = of_bytes, multiple = 2;
  } else if (m <= kFewCodedRows && fits_few(w)) {
    function = w.bits == 4 ? set.few4 : set.few8;
    work = of_bytes, multiple = 1;
  }
  const size_t step = ceil_div(std::max<size_t>(1, std::min(work, share)), multiple) * multiple;
  return {product, function, step, ceil_div(rows, step), nullptr, &set};
}

// Computes the sums of scale * code as products with a row of ones.
void fill_sums(const Plan& p, const Activations& ones, size_t begin, size_t end) {
  const CodedMatrix& m = *p.product.matrix;
  if (has_row_scales(m)) return p.set->code_sums(m, begin, end, p.unsummed->code_sums.data());
  const CodedProduct sums{&m, nullptr, nullptr, nullptr, p.unsummed->sums.data()};
  const auto function = m.bits == 4 ? (fits_few(m) ? p.set->few4 : p.set->many4) : p.set->few8;
  function(sums, ones, begin, end);
}

// Runs all pieces of all plans. `ones` is needed if sums are to be filled.
void run(const Activations& x, const Activations& ones, std::span<const Plan> plans,
         ThreadPool& pool) {
  size_t pieces = 0;
  for (const Plan& p : plans) pieces += p.pieces;
  const auto piece = [&](size_t index) {
    const Plan* p = plans.data();
    for (; index >= p->pieces; ++p) index -= p->pieces;
    const auto rows = static_cast<size_t>(p->product.matrix->rows);
    const size_t begin = index * p->step, end = std::min(rows, begin + p->step);
    if (p->unsummed != nullptr) fill_sums(*p, ones, begin, end);
    p->function(p->product, x, begin, end);
  };
  pool.parallel_for(pieces, std::ref(piece));
}

void quantize(const InstructionSet& set, const float* x, bool few, const Activations& rows,
              ThreadPool& pool) {
  const size_t step = ceil_div(kTaskValues, rows.columns + 1);
  const auto piece = [&](size_t index) {
    for (size_t i = index * step; i < std::min(rows.rows, (index + 1) * step); ++i) {
      set.quantize(x + i * rows.columns, rows.columns, few, rows.row(i));
    }
  };
  pool.parallel_for(ceil_div(rows.rows, step), std::ref(piece));
}

// Makes a row of codes of 1, with a scale of 1.
void set_ones(const ActivationRow& row, size_t columns) {
  row.head().row = {1.0f, 0};
  std::fill_n(row.codes(), columns, int8_t{1});
  std::fill(row.codes() + columns, row.codes() + row.padded, int8_t{0});
  sum_blocks(row);
  split_codes(row);
  split_eights(row);
}

// Returns whether two plans have the same matrix. One of them would read sums that the other has
// not filled yet.
bool is_repeated(std::span<const Plan> plans, const PackedMatrix::Impl* matrix) {
  return std::ranges::count(plans, matrix, &Plan::unsummed) > 1;
}

// Runs the plans, with a row of ones if some plan has no sums yet.
void run_with_sums(const Activations& x, std::span<Plan> plans, ThreadPool& pool) {
  const Scratch slot(ActivationRow::bytes(padded_columns(x.columns)) / sizeof(float));
  const Activations ones{reinterpret_cast<std::byte*>(slot.data()), 1, x.columns};
  set_ones(ones.row(0), x.columns);
  for (Plan& p : plans) {
    if (p.unsummed == nullptr || !is_repeated(plans, p.unsummed)) continue;
    fill_sums(p, ones, 0, static_cast<size_t>(p.product.matrix->rows));
    p.unsummed->has_sums = true;
    const PackedMatrix::Impl* filled = p.unsummed;
    for (Plan& same : plans) same.unsummed = same.unsummed == filled ? nullptr : same.unsummed;
  }
  run(x, ones, plans, pool);
  for (const Plan& p : plans) {
    if (p.unsummed != nullptr) p.unsummed->has_sums = true;
  }
}

}  // namespace

PackedMatrix::PackedMatrix(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PackedMatrix::PackedMatrix(PackedMatrix&&) noexcept = default;
PackedMatrix& PackedMatrix::operator=(PackedMatrix&&) noexcept = default;
PackedMatrix::~PackedMatrix() = default;

int64_t PackedMatrix::rows() const { return impl_->matrix.rows; }
int64_t PackedMatrix::columns() const { return impl_->matrix.columns; }
const CodedMatrix& PackedMatrix::matrix() const { return impl_->matrix; }
uint64_t PackedMatrix::bytes() const {
  return impl_->sums.size() * sizeof(float) + impl_->code_sums.size() * sizeof(int32_t);
}

PackedMatrix PackedMatrix::pack(const CodedMatrix& matrix) {
  auto impl = std::make_unique<PackedMatrix::Impl>();
  impl->matrix = matrix;
  const auto rows = static_cast<size_t>(matrix.rows);
  if (has_row_scales(matrix)) {
    impl->code_sums.resize(rows);
  } else {
    impl->sums.resize(rows);
  }
  return PackedMatrix(std::move(impl));
}

uint64_t dynamic_linear_scratch(int64_t m, int64_t columns) {
  return static_cast<uint64_t>(m) *
         ActivationRow::bytes(padded_columns(static_cast<size_t>(columns)));
}

void dynamic_linear_with(const InstructionSet& set, const float* x, int64_t m, int64_t columns,
                         std::span<const LinearTask> tasks, std::span<std::byte> scratch,
                         ThreadPool& pool) {
  if (m <= 0) return;
  const Activations rows{scratch.data(), static_cast<size_t>(m), static_cast<size_t>(columns)};
  const bool few = rows.rows <= std::max({kFewCodedRows, set.most_several4, set.most_several8});
  quantize(set, x, few, rows, pool);
  std::array<Plan, kMaxTasks> plans;
  while (!tasks.empty()) {
    const size_t count = std::min(tasks.size(), kMaxTasks);
    for (size_t i = 0; i < count; ++i) {
      plans[i] = plan(set, product_of(tasks[i]), rows.rows, pool.size());
      PackedMatrix::Impl& impl = tasks[i].matrix->impl();
      if (!impl.has_sums) plans[i].unsummed = &impl;
    }
    const std::span<Plan> all(plans.data(), count);
    const auto is_summed = [](const Plan& p) { return p.unsummed == nullptr; };
    std::ranges::all_of(all, is_summed) ? run(rows, {}, all, pool) : run_with_sums(rows, all, pool);
    tasks = tasks.subspan(count);
  }
}

void dynamic_linear(const float* x, int64_t m, int64_t columns, std::span<const LinearTask> tasks,
                    std::span<std::byte> scratch, ThreadPool& pool) {
  dynamic_linear_with(*instruction_sets().front(), x, m, columns, tasks, scratch, pool);
}

}  // namespace ferry::kernels
