// A part of a state that many states have in common: it is copied when one of them changes it.
#pragma once

#include <memory>
#include <utility>

namespace troupe::model {

template <class T>
class Shared {
 public:
  explicit Shared(T value) : value_(std::make_shared<T>(std::move(value))) {}
  const T& operator*() const { return *value_; }
  const T* operator->() const { return value_.get(); }
  T& edit() {
    if (value_.use_count() > 1) value_ = std::make_shared<T>(*value_);
    return *value_;
  }

 private:
  std::shared_ptr<T> value_;
};

}  // namespace troupe::model
