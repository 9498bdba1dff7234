// Root-mean-square norm of rows, y = x / rms(x) * w, with its backward. Right for every block
// size that is a power of two. A block does a row; `parts` are its sums over threads.

template <typename T>
__device__ void sum_block(T* parts) {
  for (int step = blockDim.x / 2; step > 0; step /= 2) {
    __syncthreads();
    if (threadIdx.x < step) parts[threadIdx.x] += parts[threadIdx.x + step];
  }
  __syncthreads();
}

// scales has 1 / rms(x) of each row, for the backward.
__global__ void rms_norm(const float* x, const float* w, float* y, float* scales, int n,
                         float epsilon) {
  __shared__ float parts[1024];
  const long long row = blockIdx.x * (long long)n;
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) sum += x[row + i] * x[row + i];
  parts[threadIdx.x] = sum;
  sum_block(parts);
  const float scale = rsqrtf(parts[0] / n + epsilon);
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[row + i] = x[row + i] * scale * w[i];
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
}

// dx of each row, and in dw_rows what the row adds to dw.
__global__ void rms_norm_backward(const float* x, const float* w, const float* scales,
                                  const float* dy, float* dx, float* dw_rows, int n) {
  __shared__ float parts[1024];
  const long long row = blockIdx.x * (long long)n;
  const float scale = scales[blockIdx.x];
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) sum += dy[row + i] * w[i] * x[row + i];
  parts[threadIdx.x] = sum;
  sum_block(parts);
  const float shared = parts[0] * scale * scale / n;
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    dx[row + i] = scale * (dy[row + i] * w[i] - x[row + i] * shared);
    dw_rows[row + i] = dy[row + i] * x[row + i] * scale;
  }
}
