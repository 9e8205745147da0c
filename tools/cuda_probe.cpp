// cuda_probe: lists the CUDA devices that Troupe would see. Exit code 0 if there is one, 1 if not.
#include <cstdio>

#include "kernels/cuda/devices.h"

int main() {
  const auto devices = troupe::cuda_devices();
  if (!devices.ok()) {
    std::fprintf(stderr, "cuda_probe: %s\n", devices.error().message.c_str());
    return 1;
  }
  for (const troupe::CudaDevice& device : devices.value())
    std::printf("%d  %s  compute %d.%d  %d multiprocessors  %.1f of %.1f GiB free\n", device.index,
                device.name.c_str(), device.compute_major, device.compute_minor,
                device.multiprocessors,
                static_cast<double>(device.memory_free_bytes) / (1024.0 * 1024 * 1024),
                static_cast<double>(device.memory_bytes) / (1024.0 * 1024 * 1024));
  return devices.value().empty() ? 1 : 0;
}
