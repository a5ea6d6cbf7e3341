extern "C" __global__ void __launch_bounds__(256)
fused(const float* __restrict__ in0, const float* __restrict__ in1, float* __restrict__ out0) {
    const int lane = threadIdx.x;
    const int team = threadIdx.y;
    const int block = (int)blockIdx.x;
    const int part = block;
    const int q = part + team;
    const int p = lane * 4;
    const float v0_0 = in0[q + p * 1024];
    const float v0_1 = in0[q + (p + 1) * 1024];
    const float v0_2 = in0[q + (p + 2) * 1024];
    const float v0_3 = in0[q + (p + 3) * 1024];
    const float4 w1 = *(const float4*)(in1 + q * 1024 + p);
    const float v1_0 = w1.x;
    const float v1_1 = w1.y;
    const float v1_2 = w1.z;
    const float v1_3 = w1.w;
    const float v2_0 = v0_0 + v1_0;
    const float v2_1 = v0_1 + v1_1;
    const float v2_2 = v0_2 + v1_2;
    const float v2_3 = v0_3 + v1_3;
    *(float4*)(out0 + q * 1024 + p) = make_float4(v2_0, v2_1, v2_2, v2_3);
}
