#include "kernels/cuda/devices.h"

#include <cuda_runtime.h>

namespace troupe {
namespace {

Error failure(const char* doing, cudaError_t status) {
  return Error{ErrorCode::kUnavailable, std::string(doing) + ": " + cudaGetErrorString(status)};
}

}  // namespace

Result<std::vector<CudaDevice>> cuda_devices() {
  int count = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&count); status != cudaSuccess)
    return failure("counting CUDA devices", status);
  std::vector<CudaDevice> devices;
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties{};
    if (const cudaError_t status = cudaGetDeviceProperties(&properties, index);
        status != cudaSuccess)
      return failure("reading a CUDA device's properties", status);
    CudaDevice device;
    device.index = index;
    device.name = properties.name;
    device.compute_major = properties.major;
    device.compute_minor = properties.minor;
    device.multiprocessors = properties.multiProcessorCount;
    size_t free_bytes = 0, total_bytes = 0;
    if (const cudaError_t status = cudaSetDevice(index); status != cudaSuccess)
      return failure("opening a CUDA device", status);
    if (const cudaError_t status = cudaMemGetInfo(&free_bytes, &total_bytes); status != cudaSuccess)
      return failure("asking a CUDA device for its memory", status);
    device.memory_bytes = total_bytes;
    device.memory_free_bytes = free_bytes;
    devices.push_back(device);
  }
  return devices;
}

}  // namespace troupe
