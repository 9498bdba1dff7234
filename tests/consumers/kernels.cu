template <typename T>
__global__ void add(T* x) {
  x[threadIdx.x] += STEP;
}
