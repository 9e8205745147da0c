// Cuts attention into tasks. A task is one kv head and a run of rows of one sequence, so that its
// queries (rows times the query heads that share the kv head) go through each page together. Where
// that gives too few tasks for the threads, as in decoding, a task is one query head instead. The
// cut changes no bit: queries do not mix.
#pragma once

#include <span>
#include <vector>

#include "kernels/cpu/avx2_kernels.h"
#include "kernels/ops.h"

namespace troupe {

class AttentionPlan {
 public:
  explicit AttentionPlan(size_t threads) : scratch_(threads) {}

  // Arguments as checked by check_attention; they must outlive the runs.
  void prepare(TensorView<float> y, TensorView<const float> q, const KvLayer& layer,
               std::span<const RowPlace> places, float scale);
  size_t tasks() const { return runs_.size() * heads_ / heads_together_; }
  size_t products() const { return products_; }  // multiplications in all tasks
  void run(size_t task, size_t thread);

 private:
  struct RowRun {
    size_t first = 0;
    size_t last = 0;
  };
  struct Scratch {
    std::vector<avx2::Query> queries;
    std::vector<float> memory;  // the page, widened
  };

  TensorView<float> y_;
  TensorView<const float> q_;
  KvLayer layer_;
  std::span<const RowPlace> places_;
  float scale_ = 0;
  size_t heads_ = 0;
  size_t heads_together_ = 1;  // query heads of a task
  size_t products_ = 0;
  std::vector<RowRun> runs_;
  std::vector<Scratch> scratch_;  // one a thread
};

}  // namespace troupe
