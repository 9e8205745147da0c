// The AVX2 loops, called by cpu_operators.cpp on a CPU that has AVX2, FMA and F16C. Only these
// files are compiled for that instruction set, and this interface is plain pointers and sizes: no
// inline library function gets compiled there, which the linker might then hand to code that runs
// on any CPU.
//
// Weights are packed in panels of 16 rows (the last one padded with zeros), so that lanes are
// output rows and k ascends, which is the order of numerics rule N2: no sum ever crosses lanes.
//   F32, F16, BF16  [k][16 rows]
//   formats with a decoder: panel_layout.h
//   quantised     [block of 32 k] of:
//                 scale    16 halves;   Q4_1 then 16 minimums
//                 Q8_0:    [2 halves of the panel][8 quads][8 rows][4 k]         quad i: k 4i to
//                 4i+3 Q4:      [2 halves of the panel][4 quads][8 rows][4 bytes]     byte j of
//                 quad i: k 4i+j in its
//                                                                      low half, k 16+4i+j in its
//                                                                      high half
#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe::avx2 {

inline constexpr size_t kPanelRows = 16;

// Bytes of one block of 32 k of a panel.
inline constexpr size_t kQ8_0PanelBlock = 32 + 2 * 256;
inline constexpr size_t kQ4_0PanelBlock = 32 + 2 * 128;
inline constexpr size_t kQ4_1PanelBlock = 64 + 2 * 128;

// Activations quantised per block of 32 (reference/matmul.cpp defines how). Row r starts at r *
// blocks (q: times 32) of each array.
struct QuantisedRows {
  int8_t* q = nullptr;
  float* d = nullptr;
  float* d_sum = nullptr;        // d · float(Σ q)
  float* d_half_sums = nullptr;  // [2 a block] the same of each 16
  int32_t* sum = nullptr;        // Σ q
  size_t blocks = 0;
};
void quantise_row(const float* x, size_t row, const QuantisedRows& rows);

// Where a product's results go: y[r * stride + n].
struct ProductRows {
  float* y = nullptr;
  size_t stride = 0;
  size_t rows = 0;     // of x and y
  size_t columns = 0;  // outputs n that exist: panels beyond are cut here
};

// Panels [first, last) of a weight against every row.
void matmul_q8_0(const std::byte* panels, size_t first, size_t last, const QuantisedRows& x,
                 const ProductRows& out);
void matmul_q4_0(const std::byte* panels, size_t first, size_t last, const QuantisedRows& x,
                 const ProductRows& out);
void matmul_q4_1(const std::byte* panels, size_t first, size_t last, const QuantisedRows& x,
                 const ProductRows& out);
void matmul_q5_0(const std::byte* panels, size_t first, size_t last, const QuantisedRows& x,
                 const ProductRows& out);
void matmul_q5_1(const std::byte* panels, size_t first, size_t last, const QuantisedRows& x,
                 const ProductRows& out);
void matmul_q2_k(const std::byte* panels, size_t first, size_t last, const QuantisedRows& x,
                 const ProductRows& out);
void matmul_q3_k(const std::byte* panels, size_t first, size_t last, const QuantisedRows& x,
                 const ProductRows& out);
void matmul_q4_k(const std::byte* panels, size_t first, size_t last, const QuantisedRows& x,
                 const ProductRows& out);
void matmul_q5_k(const std::byte* panels, size_t first, size_t last, const QuantisedRows& x,
                 const ProductRows& out);
void matmul_q6_k(const std::byte* panels, size_t first, size_t last, const QuantisedRows& x,
                 const ProductRows& out);
void matmul_iq4_nl(const std::byte* panels, size_t first, size_t last, const QuantisedRows& x,
                   const ProductRows& out);
void matmul_iq4_xs(const std::byte* panels, size_t first, size_t last, const QuantisedRows& x,
                   const ProductRows& out);
void matmul_mxfp4(const std::byte* panels, size_t first, size_t last, const QuantisedRows& x,
                  const ProductRows& out);
// x [rows][k]
void matmul_f32(const std::byte* panels, size_t first, size_t last, const float* x, size_t k,
                const ProductRows& out);
void matmul_f16(const std::byte* panels, size_t first, size_t last, const float* x, size_t k,
                const ProductRows& out);
void matmul_bf16(const std::byte* panels, size_t first, size_t last, const float* x, size_t k,
                 const ProductRows& out);

// One row each; shapes as in kernels/ops.h.
void rms_norm_row(float* y, const float* x, const float* weight, size_t columns, float epsilon);
void swiglu(float* y, const float* gate, const float* up, size_t count);
void add(float* y, const float* x, size_t count);
void rotate_head(float* x, const float* cosines, const float* sines, size_t pairs);
// The same for pairs (i, i + pairs).
void rotate_halves(float* x, const float* cosines, const float* sines, size_t pairs);
// to[i] = half(from[i])
void store_halves(uint16_t* to, const float* from, size_t count);

// One query of one head as it goes through the pages of its past.
struct Query {
  const float* q = nullptr;  // [head_dim]
  float* y = nullptr;        // [head_dim]: the weighted sum of values so far, at the end the result
  float largest = 0;         // score
  float sum = 0;
  size_t tokens = 0;  // positions it sees, from 0
};

// Takes queries, all of one kv head and one list of blocks, past one page: its positions first,
// first + 1, …. Queries that end before `first` stay as they are. keys [head_dim][64], values
// [64][head_dim] of this page. scratch: attention_scratch_floats(head_dim) floats, aligned to 32
// bytes.
size_t attention_scratch_floats(size_t head_dim);
void attend_page(Query* queries, size_t count, size_t first, const uint16_t* keys,
                 const uint16_t* values, size_t head_dim, float scale, float* scratch);
// y = y / sum
void finish_query(const Query& query, size_t head_dim);

}  // namespace troupe::avx2
